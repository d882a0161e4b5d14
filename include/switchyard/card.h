// The card of a job: its knobs, as the text that the person wrote.
//
// Concept. One list of knobs, from which come the names in the environment (SWITCHYARD_ + suffix),
// the card that travels between shim and monitor, and its defaults. Whoever acts on a knob parses
// its text with settings.h.
//
// Threading: a plain value.
#pragma once

namespace switchyard {

// KNOB(field, ENVIRONMENT SUFFIX, capacity of its text with the terminating zero, default text)
#define SWITCHYARD_KNOBS(KNOB)                 \
  KNOB(job, "JOB", 64, "")                     \
  KNOB(name, "NAME", 64, "")                   \
  KNOB(priority, "PRIORITY", 16, "normal")     \
  KNOB(share, "SHARE", 24, "1")                \
  KNOB(limit, "LIMIT", 8, "")                  \
  KNOB(deadline, "DEADLINE", 24, "")           \
  KNOB(memory, "MEMORY", 24, "")               \
  KNOB(on_oom, "ON_OOM", 8, "fail")            \
  KNOB(oom_timeout, "OOM_TIMEOUT", 24, "300s") \
  KNOB(swappable, "SWAPPABLE", 8, "no")        \
  KNOB(idle_release, "IDLE_RELEASE", 24, "")   \
  KNOB(oversubscribe, "OVERSUBSCRIBE", 8, "no")

// What a job is asked to be, as text. All zero is valid and means "the defaults". Every field ends
// in a zero byte within its capacity; a reader that doesn't trust the writer checks that.
struct JobCard {
#define SWITCHYARD_KNOB_FIELD(field, env, capacity, fallback) char field[capacity];
  SWITCHYARD_KNOBS(SWITCHYARD_KNOB_FIELD)
#undef SWITCHYARD_KNOB_FIELD
};
static_assert(sizeof(JobCard) == 296, "the card is part of the page: raise abi::kLayoutVersion");

}  // namespace switchyard
