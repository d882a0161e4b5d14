// The card of a job: its knobs, as the text that the person wrote.
//
// Concept. One list of knobs, expanded wherever a knob is read, checked, sent or shown. It makes
// the names in the environment (SWITCHYARD_ + suffix), the card that travels between shim and
// monitor, and its defaults. It makes the options of `run` and `set`, and the values that the
// monitor acts on. A new knob is a row here, where it acts, and a kind of value in settings.h if
// none fits.
//
// It travels as text of a bounded size: key=value, each with a zero behind it, and one more zero at
// the end. The keys are the fields' names. So a new knob changes no layout: a side that does not
// know a key carries it along, as it came.
//
// Threading: a plain value. The texts of a page may change while they are read: what is read then
// is some text within its bounds.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstring>

namespace switchyard {

// Of a made-up next version (abi.h: kLaterBytes).
#if defined(SWITCHYARD_SUCCESSOR_MORE)
#define SWITCHYARD_LATER_KNOBS(KNOB) KNOB(made_up, "MADE_UP", 16, "", Name, nullptr, "", true, "")
#else
#define SWITCHYARD_LATER_KNOBS(KNOB)
#endif

// KNOB(field, ENVIRONMENT SUFFIX, capacity of its text with the terminating zero, default text,
//      kind of value (settings.h), option of `run` or null, the value's name in --help; null: a
//      flag, which means "yes"; "[=N]": a flag that may have a value, whether `set` may change it,
//      what it means to a person)
// What expands the list names the columns that it needs, and ends with `...`.
#define SWITCHYARD_KNOBS(KNOB)                                                                    \
  KNOB(job, "JOB", 64, "", Name, nullptr, "ID", false, "")                                        \
  KNOB(name, "NAME", 64, "", Name, "--name", "NAME", false,                                       \
       "the job's name for `ps`, `set` and other commands; unique among live jobs")               \
  KNOB(priority, "PRIORITY", 16, "normal", Class, "--priority", "CLASS", true,                    \
       "high: low latency, others yield while it works; low: uses the time that others leave")    \
  KNOB(share, "SHARE", 24, "1", Weight, "--share", "WEIGHT|auto", true,                           \
       "weight among the jobs of one priority; auto: what its iterations gain by")                \
  KNOB(limit, "LIMIT", 8, "", Limit, "--limit", "PART", true,                                     \
       "the most of the GPU's time that it may use, even when the GPU is free")                   \
  KNOB(deadline, "DEADLINE", 16, "", Deadline, "--deadline", "TIME", true,                        \
       "time from its start until it should be done; see `policy deadline`")                      \
  KNOB(memory, "MEMORY", 24, "", Memory, "--memory", "SIZE", true,                                \
       "device memory per GPU (20GiB, 45%): reserved for it and its quota, contexts included")    \
  KNOB(on_oom, "ON_OOM", 8, "fail", OnOom, "--on-oom", "fail|wait", false,                        \
       "beyond the quota: the driver's out-of-memory error, or wait for memory")                  \
  KNOB(oom_timeout, "OOM_TIMEOUT", 24, "300s", Timeout, "--oom-timeout", "TIME", false,           \
       "how long an allocation waits under --on-oom wait")                                        \
  KNOB(swappable, "SWAPPABLE", 8, "no", YesNo, "--swappable", nullptr, false,                     \
       "its memory can be swapped out (`swap-out`, `pause --release`); fixed while it runs")      \
  KNOB(idle_release, "IDLE_RELEASE", 24, "", Idle, "--idle-release", "TIME[,contexts]", false,    \
       "swappable; swapped out automatically after this time without work")                       \
  KNOB(oversubscribe, "OVERSUBSCRIBE", 8, "no", YesNo, "--oversubscribe", nullptr, false,         \
       "swappable; alternates with other such jobs when their memory does not fit")               \
  KNOB(park, "PARK", 8, "host", Park, "--park", "host|peer|auto", true,                           \
       "where its swapped-out memory goes: the host, another GPU, or both in turn")               \
  KNOB(guard, "GUARD", 8, "", Guard, "--guard", "PART", true,                                     \
       "others are held back when they take more than this of its iterations per second")         \
  KNOB(urgent_collectives, "URGENT_COLLECTIVES", 8, "no", YesNo, "--urgent-collectives", nullptr, \
       false, "FSDP: its all-gathers overtake its reduce-scatters (NCCL, one machine)")           \
  KNOB(gradient_noise, "GRADIENT_NOISE", 8, "no", Every, "--gradient-noise", "[=N]", false,       \
       "measure how noisy the gradients of a data-parallel training are, each Nth step")          \
  KNOB(co_run, "CO_RUN", 32, "no", Island, "--co-run", "[=NAME]", false,                          \
       "one GPU: its kernels run at once with those of its user's other jobs with it (MPS)")      \
  KNOB(island_gpu, "ISLAND_GPU", 48, "", Name, nullptr, "UUID", false, "")                        \
  SWITCHYARD_LATER_KNOBS(KNOB)

// A card as text, with the zeroes at its end.
inline constexpr std::size_t kCardBytes = 1024;
using CardText = char[kCardBytes];

// Of that, for settings that this version does not know.
inline constexpr std::size_t kUnknownCardBytes = 320;

// The settings that are asked for a job, as text. All zero is valid and means "the defaults". Every
// field ends in a zero byte within its capacity; a reader that doesn't trust the writer checks
// that.
struct JobCard {
#define SWITCHYARD_KNOB_FIELD(field, env, capacity, ...) char field[capacity];
  SWITCHYARD_KNOBS(SWITCHYARD_KNOB_FIELD)
#undef SWITCHYARD_KNOB_FIELD
  // Settings of a later version, as in a text.
  char unknown[kUnknownCardBytes];
};

#define SWITCHYARD_KNOB_BYTES(field, env, capacity, ...) +sizeof(#field) + (capacity)
static_assert(SWITCHYARD_KNOBS(SWITCHYARD_KNOB_BYTES) + kUnknownCardBytes <= kCardBytes,
              "every card has room in a text: make kUnknownCardBytes smaller");
#undef SWITCHYARD_KNOB_BYTES

namespace detail {

// Calls each(entry, length of its key, its value) until one answers false. False then, and where
// `text` is none.
template <std::size_t kBytes, typename Each>
bool for_card_entries(const char (&text)[kBytes], Each each) {
  for (std::size_t at = 0; at < kBytes;) {
    const char* entry = text + at;
    const std::size_t length = ::strnlen(entry, kBytes - at);
    if (length == kBytes - at) return false;  // no zero ends it
    if (length == 0) return true;
    const void* sign = std::memchr(entry, '=', length);
    if (sign == nullptr || sign == entry) return false;
    const auto key = static_cast<std::size_t>(static_cast<const char*>(sign) - entry);
    if (!each(entry, key, entry + key + 1)) return false;
    at += length + 1;
  }
  return false;
}

inline bool is_key(const char* entry, std::size_t length, const char* key) {
  return std::strlen(key) == length && std::memcmp(entry, key, length) == 0;
}

// False: it does not fit.
template <std::size_t kCapacity>
bool copy_card_text(char (&to)[kCapacity], const char* from) {
  const std::size_t length = ::strnlen(from, kCapacity);
  const bool fits = length < kCapacity;
  std::memset(to, 0, kCapacity);
  std::memcpy(to, from, fits ? length : kCapacity - 1);
  return fits;
}

template <std::size_t kBytes>
void append_card_entry(char (&text)[kBytes], std::size_t& at, const char* key, const char* value) {
  const std::size_t bytes = std::strlen(key) + std::strlen(value) + 2;
  if (value[0] == '\0' || at + bytes >= kBytes) return;
  at += static_cast<std::size_t>(std::snprintf(text + at, kBytes - at, "%s=%s", key, value)) + 1;
}

}  // namespace detail

// False: it is none, a value is longer than its knob may have, or there is no room for what is
// unknown.
inline bool read_card_text(const CardText& text, JobCard& card) {
  card = {};
  std::size_t used = 0;
  return detail::for_card_entries(text, [&](const char* entry, std::size_t key, const char* value) {
#define SWITCHYARD_READ_ENTRY(field, ...) \
  if (detail::is_key(entry, key, #field)) return detail::copy_card_text(card.field, value);
    SWITCHYARD_KNOBS(SWITCHYARD_READ_ENTRY)
#undef SWITCHYARD_READ_ENTRY
    const std::size_t bytes = std::strlen(entry) + 1;
    if (used + bytes >= sizeof(card.unknown)) return false;
    std::memcpy(card.unknown + used, entry, bytes);
    used += bytes;
    return true;
  });
}

// Knobs that are not set are left out. pre: every field ends in a zero.
inline void write_card_text(const JobCard& card, CardText& text) {
  std::memset(text, 0, sizeof(text));
  std::size_t at = 0;
#define SWITCHYARD_WRITE_ENTRY(field, ...) detail::append_card_entry(text, at, #field, card.field);
  SWITCHYARD_KNOBS(SWITCHYARD_WRITE_ENTRY)
#undef SWITCHYARD_WRITE_ENTRY
  detail::for_card_entries(card.unknown, [&](const char* entry, std::size_t, const char*) {
    const std::size_t bytes = std::strlen(entry) + 1;
    if (at + bytes >= sizeof(text)) return false;
    std::memcpy(text + at, entry, bytes);
    at += bytes;
    return true;
  });
}

// One value of a card; cut where it is longer. Empty: it is not set.
template <std::size_t kCapacity>
void read_card_value(const CardText& text, const char* wanted, char (&value)[kCapacity]) {
  value[0] = '\0';
  detail::for_card_entries(text, [&](const char* entry, std::size_t key, const char* there) {
    if (!detail::is_key(entry, key, wanted)) return true;
    detail::copy_card_text(value, there);
    return false;
  });
}

inline bool card_says_yes(const CardText& text, const char* key) {
  char value[8];
  read_card_value(text, key, value);
  return std::strcmp(value, "yes") == 0;
}

}  // namespace switchyard
