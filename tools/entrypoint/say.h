// The lines of switchyard-entrypoint on stderr. SWITCHYARD_LOG=off silences them.
//
// Threading: the only thread.
#pragma once

// "switchyard-entrypoint: TEXT", without control characters, in one write.
__attribute__((format(printf, 1, 2))) void say(const char* format, ...);

// Memory is short: says so and ends with 125. Only what a person named is allocated.
void* must(void* allocated);
