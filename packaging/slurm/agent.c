#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Slurm waits 2 s. The job is to hear before that what stays.
#define WITHIN "1500ms"

static void close_others(void) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, 3U, ~0U, 0U) == 0) return;
#endif
  const long most = sysconf(_SC_OPEN_MAX);
  for (long fd = 3; fd < (most > 0 && most < 65536 ? most : 65536); ++fd) close((int)fd);
}

// Runs the command line and waits for its end.
static void run(const struct agent* about, char* const words[]) {
  const pid_t child = fork();
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    char socket[256];
    snprintf(socket, sizeof(socket), "SWITCHYARD_SOCKET=%s", about->socket);
    char* const environment[] = {socket, "PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
    execve(about->command, words, environment);
    _exit(127);
  }
  while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
}

static void serve(const struct agent* about, pid_t task) {
  // Both ends of a race: the task may have gone already.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != task) _exit(0);
  prctl(PR_SET_NAME, "switchyard-task");
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  if (!about->speaks) dup2(null, STDERR_FILENO);
  close_others();
  signal(SIGCHLD, SIG_DFL);
  sigset_t heard;
  sigemptyset(&heard);
  sigaddset(&heard, SIGTSTP);
  sigaddset(&heard, SIGCONT);
  sigprocmask(SIG_SETMASK, &heard, NULL);
  for (;;) {
    const int number = sigwaitinfo(&heard, NULL);
    char* job = (char*)about->job;
    if (number == SIGTSTP) {
      run(about, (char*[]){"switchyard", "pause", "--release", "--within", WITHIN, job, NULL});
    } else if (number == SIGCONT) {
      run(about, (char*[]){"switchyard", "resume", job, NULL});
    }
  }
}

bool start_agent(const struct agent* about) {
  const pid_t task = getpid();
  // No flag and no signal at its end. Not fork(), whose children end with SIGCHLD.
  const long child = syscall(SYS_clone, 0UL, NULL, NULL, NULL, 0UL);
  if (child == 0) serve(about, task);
  return child > 0;
}
