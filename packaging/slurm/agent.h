// The agent of a task: orders the release of the job's GPU memory when Slurm suspends the job, and
// its return when Slurm resumes it.
//
// Concept. Slurm sends SIGTSTP to all processes of a step, waits 2 s, and sends SIGSTOP, whatever
// they did about the first. A stopped process can't copy its memory. So tasks ignore SIGTSTP, and
// use the 2 s to leave the GPU. The agent stands among them and hears it. SIGSTOP stops the agent,
// too. It hears SIGCONT first thing afterwards.
//
// Under proctrack/linuxproc a process belongs to a step by its parents. So the agent is the task's
// child, and ends with it. It exits without a signal to its parent: so a task that waits for any
// child of its own does not wait for this one. An exec would change that. It makes none.
//
// Threading: start_agent() in a process of one thread, just before that becomes the task.
#pragma once

#include <stdbool.h>

struct agent {
  const char* command;  // switchyard
  const char* socket;   // the monitor's
  const char* job;      // its id
  bool speaks;          // on stderr, where memory stays: one of a step's agents is enough
};

// False: there is none; errno says why.
bool start_agent(const struct agent* about);
