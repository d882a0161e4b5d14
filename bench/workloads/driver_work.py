"""The part of a workload by the driver API that is the same for all: one stream, and tickets that
are events on it.

Threading: as harness.py.
"""

import harness
from driver_api import Driver


class DriverWork(harness.Workload):
    def open(self):
        """The driver, loaded; a stream and its events."""
        self.driver = Driver()
        self.stream = self.driver.stream()
        # Reused: creating an event in every step would be a cost that no real program has.
        self.events = [self.driver.event() for _ in range(self.ahead + 2)]
        self.next_event = 0
        return self.driver

    def ticket(self):
        """For what is on the stream so far."""
        event = self.events[self.next_event]
        self.next_event = (self.next_event + 1) % len(self.events)
        self.driver.check("cuEventRecord", event, self.stream)
        return event

    def wait(self, ticket):
        self.driver.check("cuEventSynchronize", ticket)

    def synchronize(self):
        self.driver.check("cuStreamSynchronize", self.stream)
