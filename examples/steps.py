"""The loop of the trainings here: steps for some seconds, and a line each second that tells how far."""

import time


def repeat(step, seconds):
    """Calls `step`, which does one step and returns its loss, for so many seconds."""
    begun = said = time.monotonic()
    steps = 0
    while time.monotonic() - begun < seconds:
        loss = step()
        steps += 1
        now = time.monotonic()
        if now - said >= 1:
            print(f"step {steps}, loss {loss:.4f}, {steps / (now - begun):.1f} steps/s", flush=True)
            said = now
    print(f"{steps} steps", flush=True)
