// The card of a job: its knobs, as the text that the person wrote.
//
// Concept. One list of knobs, expanded wherever a knob is read, checked, sent or shown: the names
// in the environment (SWITCHYARD_ + suffix), the card that travels between shim and monitor, its
// defaults, the options of `run` and `set`, and the values that the monitor acts on. A new knob is
// a row here, where it acts, and a kind of value in settings.h if none fits.
//
// Threading: a plain value.
#pragma once

namespace switchyard {

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
       "device memory per GPU: reserved for the job and its quota, contexts included")            \
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
       "measure how noisy the gradients of a data-parallel training are, each Nth step")

// What a job is asked to be, as text. All zero is valid and means "the defaults". Every field ends
// in a zero byte within its capacity; a reader that doesn't trust the writer checks that.
struct JobCard {
#define SWITCHYARD_KNOB_FIELD(field, env, capacity, ...) char field[capacity];
  SWITCHYARD_KNOBS(SWITCHYARD_KNOB_FIELD)
#undef SWITCHYARD_KNOB_FIELD
};
static_assert(sizeof(JobCard) == 320, "the card is part of the page: raise abi::kLayoutVersion");

}  // namespace switchyard
