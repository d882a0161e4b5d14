// The SPANK plugin: options of srun, sbatch and salloc become settings of a job of Switchyard.
//
// Concept. A Slurm job is one job of Switchyard on each node, "slurm-ID", whatever steps and tasks
// it has. srun and sbatch check the values, so a bad one is refused at submission. In the task,
// just before its program, variables say the rest (docs/reference/environment.md), and the agent is
// started. Nothing here waits for a monitor.
//
// Its interface is that of the Slurm whose headers it was compiled with: `make slurm`.
//
// Threading: Slurm calls it from one thread.
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "words.h"

// What Slurm looks up; all else is hidden from it.
#pragma GCC visibility push(default)
#include <slurm/spank.h>
SPANK_PLUGIN(switchyard, 1)
#pragma GCC visibility pop

enum { MEMORY, WEIGHT, PRIORITY, OPTIONS };

static struct slurm_site site;
static char given[OPTIONS][SLURM_VALUE];  // empty: not given

static const char* bad_value(int option, const char* text) {
  return option == MEMORY   ? slurm_bad_memory(text)
         : option == WEIGHT ? slurm_bad_weight(text)
                            : slurm_bad_priority(text);
}

static int take(int option, const char* text, int remote);

static struct spank_option options[OPTIONS] = {
    {"gpu-share-memory", "SIZE",
     "GPU memory per GPU: reserved for the job and its quota, such as 20GiB (Switchyard)", 1,
     MEMORY, take},
    {"gpu-share-weight", "WEIGHT",
     "weight among the jobs of one priority on the GPU, such as 4 (Switchyard)", 1, WEIGHT, take},
    {"gpu-share-priority", "CLASS",
     "high, normal or low: who yields to whom on the GPU (Switchyard)", 1, PRIORITY, take},
};

static int take(int option, const char* text, int remote) {
  (void)remote;
  const char* forms = text != NULL ? bad_value(option, text) : "a value";
  if (forms != NULL) {
    slurm_error("--%s: '%s' is not %s", options[option].name, text != NULL ? text : "", forms);
    return -1;
  }
  snprintf(given[option], sizeof(given[option]), "%s", text);
  return 0;
}

int slurm_spank_init(spank_t spank, int count, char** words) {
  const spank_context_t context = spank_context();
  char why[256];
  if (!slurm_read_site(&site, count, words, why, sizeof(why))) {
    slurm_error("switchyard: %s", why);
    return -1;
  }
  if (context != S_CTX_LOCAL && context != S_CTX_REMOTE && context != S_CTX_ALLOCATOR) return 0;
  for (int i = 0; i < OPTIONS; ++i) {
    if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) {
      slurm_error("switchyard: --%s could not be registered", options[i].name);
      return -1;
    }
  }
  return 0;
}

static unsigned number_in(spank_t spank, const char* variable) {
  char text[32];
  if (spank_getenv(spank, variable, text, sizeof(text)) != ESPANK_SUCCESS) return 0;
  return (unsigned)strtoul(text, NULL, 10);
}

// Those that Slurm has chosen. Its list has commas.
static unsigned gpus_in(spank_t spank) {
  char list[1024];
  if (spank_getenv(spank, "CUDA_VISIBLE_DEVICES", list, sizeof(list)) != ESPANK_SUCCESS) return 1;
  unsigned gpus = 1;
  for (const char* at = list; (at = strchr(at, ',')) != NULL; ++at) ++gpus;
  return gpus;
}

// Behind what is there already, as `switchyard run` does.
static void preload(spank_t spank) {
  char before[4096], after[4096 + 4096];
  if (spank_getenv(spank, "LD_PRELOAD", before, sizeof(before)) != ESPANK_SUCCESS) before[0] = '\0';
  if (strstr(before, site.library) != NULL) return;
  snprintf(after, sizeof(after), "%s%s%s", before, before[0] != '\0' ? ":" : "", site.library);
  spank_setenv(spank, "LD_PRELOAD", after, 1);
}

// An option wins over shards, and these over a variable of the person.
static bool set_settings(spank_t spank) {
  const struct slurm_part part =
      slurm_part_of(&site, number_in(spank, "SLURM_SHARDS_ON_NODE"), gpus_in(spank));
  static const char* const variables[OPTIONS] = {"SWITCHYARD_MEMORY", "SWITCHYARD_SHARE",
                                                 "SWITCHYARD_PRIORITY"};
  const char* const shards[OPTIONS] = {part.memory, part.weight, ""};
  bool any = false;
  for (int i = 0; i < OPTIONS; ++i) {
    const char* value = given[i][0] != '\0' ? given[i] : shards[i];
    if (value[0] == '\0') continue;
    spank_setenv(spank, variables[i], value, 1);
    any = true;
  }
  return any;
}

int slurm_spank_task_init(spank_t spank, int count, char** words) {
  (void)count;
  (void)words;
  uint32_t number = 0;
  int task = 0;
  if (spank_get_item(spank, S_JOB_ID, &number) != ESPANK_SUCCESS) return 0;
  spank_get_item(spank, S_TASK_ID, &task);
  const bool asked = set_settings(spank);
  if (!asked && !site.all) return 0;
  if (access(site.library, R_OK) != 0) {
    slurm_error("switchyard: %s: %s; this node can keep no share of a GPU", site.library,
                strerror(errno));
    return asked ? -1 : 0;
  }
  char job[32];
  snprintf(job, sizeof(job), "slurm-%u", number);
  // Of a job of Switchyard in which sbatch was called, or of another machine.
  spank_setenv(spank, "SWITCHYARD_JOB", job, 1);
  spank_setenv(spank, "SWITCHYARD_NAME", job, 1);
  spank_setenv(spank, "SWITCHYARD_SOCKET", site.socket, 1);
  spank_setenv(spank, "SWITCHYARD_SWAPPABLE", "yes", 0);
  // The settings are promises to the others on the GPU, too.
  if (asked) spank_setenv(spank, "SWITCHYARD_REQUIRE", "1", 1);
  preload(spank);
  const struct agent about = {site.command, site.socket, job, task == 0};
  if (!start_agent(&about)) {
    slurm_error("switchyard: no agent, so a suspended job keeps its GPU memory: %s",
                strerror(errno));
  }
  // A shell on a terminal gives its children what it got, and its user types Ctrl-Z.
  if (!isatty(STDIN_FILENO)) signal(SIGTSTP, SIG_IGN);
  return 0;
}
