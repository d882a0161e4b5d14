// What the plugin for Slurm makes of words: its arguments in plugstack.conf, the values of its
// options, and shards.
//
// Concept. The forms are those of include/switchyard/settings.h. They are here once more, because
// srun, sbatch and root's slurmstepd load this: plain C, which brings no run time along. A test
// compares both.
//
// Threading: pure functions.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Of plugstack.conf. The texts belong to it.
struct slurm_site {
  const char* library;  // libswitchyard.so
  const char* command;  // switchyard
  const char* socket;   // the monitor's
  unsigned shards;      // of each GPU, as in gres.conf; 0: shards mean nothing
  double gpu_bytes;     // memory of each GPU, which the shards divide; 0: they divide none
  bool all;             // tasks of jobs without options and shards are managed, too
};

// NAME=VALUE or NAME. False: `why` names the word.
bool slurm_read_site(struct slurm_site* site, int count, char** words, char* why, size_t room);

// Where a value may not be: the forms that may. Null: it is good.
const char* slurm_bad_memory(const char* text);
const char* slurm_bad_weight(const char* text);
const char* slurm_bad_priority(const char* text);

enum { SLURM_VALUE = 24 };  // bytes of a value, with its zero

struct slurm_part {
  char memory[SLURM_VALUE];  // empty: not said
  char weight[SLURM_VALUE];
};

// The part that so many shards of so many GPUs are. Without shards both are empty.
struct slurm_part slurm_part_of(const struct slurm_site* site, unsigned shards, unsigned gpus);

#ifdef __cplusplus
}
#endif
