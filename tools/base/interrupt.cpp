#include "tools/base/interrupt.h"

namespace switchyard::tools {
namespace {

volatile sig_atomic_t g_came = 0;

}  // namespace

Interruptible::Interruptible() {
  g_came = 0;
  struct sigaction on {};
  on.sa_handler = [](int) { g_came = 1; };  // without SA_RESTART: poll() returns
  ::sigemptyset(&on.sa_mask);
  ::sigaction(SIGINT, &on, &before_);
  // A shell starts what runs in the background with it ignored.
  if (before_.sa_handler == SIG_IGN) ::sigaction(SIGINT, &before_, nullptr);
}

Interruptible::~Interruptible() {
  ::sigaction(SIGINT, &before_, nullptr);
  g_came = 0;
}

bool Interruptible::came() { return g_came != 0; }

}  // namespace switchyard::tools
