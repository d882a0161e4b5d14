#!/usr/bin/env python3
"""Decodes a trace of `switchyard trace` with Perfetto's own definitions, and checks what must hold.

    check_trace.py TRACE [TRACK=SLICE...]

On each track slices begin and end in turn, and none overlaps. On a job's track they follow each
other without gaps, and its states are where its slices are: its track NAME/state. Every name was
told before it is used. Each flow leads from one slice to one later slice. Each GPU says what it is.
Each TRACK=SLICE must be there: a job's track, and a part of the name of a slice on it. Prints the
tracks with the number of their slices.

The definitions are those of the package `perfetto` (scripts/trace-requirements.txt).
"""
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

EVENT = perfetto.TrackEvent


def fail(text):
    sys.exit(f"check_trace: {text}")


class Tracks:
    """What the packets say: tracks by uuid, their slices as [from, to, name], and flows."""

    def __init__(self, trace):
        self.about, self.slices, self.counts, self.states = {}, {}, {}, {}
        self.names, self.flows, self.gpus = {}, {}, []
        for number, packet in enumerate(trace.packet):
            self.take(number, packet)

    def take(self, number, packet):
        """One packet."""
        if number == 0 and not packet.sequence_flags & 1:
            fail("the first packet does not clear the incremental state")
        for name in packet.interned_data.event_names:
            self.names[name.iid] = name.name
        self.gpus.extend(packet.gpu_info.gpus)
        if packet.HasField("track_descriptor"):
            self.about[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            self.event(packet.timestamp, packet.track_event)

    def event(self, at, event):
        """One event of a track."""
        if event.track_uuid not in self.about:
            fail(f"an event of a track that nobody described: {event}")
        if event.type == EVENT.TYPE_COUNTER:
            self.counts.setdefault(event.track_uuid, []).append(at)
            return
        if event.type == EVENT.TYPE_STATE:
            self.enter(at, event)
            return
        slices = self.slices.setdefault(event.track_uuid, [])
        is_open = bool(slices) and slices[-1][1] is None
        if event.type == EVENT.TYPE_SLICE_END:
            if not is_open or at < slices[-1][0]:
                fail(f"a slice ends that did not begin: {event}")
            slices[-1][1] = at
        elif event.type == EVENT.TYPE_SLICE_BEGIN:
            if is_open or (slices and at < slices[-1][1]):
                fail(f"a slice begins within another: {event}")
            if event.name_iid not in self.names:
                fail(f"a name that was not told: {event}")
            slices.append([at, None, self.names[event.name_iid]])
            for flow in event.flow_ids:
                self.flows.setdefault(flow, [None, None])[0] = at
            for flow in event.terminating_flow_ids:
                self.flows.setdefault(flow, [None, None])[1] = at
        else:
            fail(f"an event of another type: {event}")

    def enter(self, at, event):
        """A state begins, or with no name the last one ends."""
        if not self.about[event.track_uuid].HasField("state"):
            fail(f"a state on a track of another kind: {event}")
        if event.name_iid and event.name_iid not in self.names:
            fail(f"a name that was not told: {event}")
        states = self.states.setdefault(event.track_uuid, [])
        if states:
            if at < states[-1][0]:
                fail(f"a state begins before the last one: {event}")
            states[-1][1] = at
        if event.name_iid:
            states.append([at, None, self.names[event.name_iid]])

    def check_states(self):
        """Those of a job are where its slices are."""
        for uuid, states in self.states.items():
            slices = self.slices[self.about[uuid].parent_uuid]
            if [states[0][0], states[-1][1]] != [slices[0][0], slices[-1][1]]:
                fail(f"states from {states[0]} to {states[-1]}, slices from {slices[0]} to "
                     f"{slices[-1]}")

    def check_gpus(self):
        """Each GPU says what it is."""
        tracks = sum(1 for about in self.about.values() if about.name.startswith("GPU "))
        if len(self.gpus) != tracks:
            fail(f"{len(self.gpus)} GPUs are described, and {tracks} have a track")
        for gpu in self.gpus:
            if not gpu.name or gpu.vendor != "NVIDIA" or not gpu.model or len(gpu.uuid) != 16:
                fail(f"a GPU that is not described: {gpu}")

    def check(self):
        """What must hold of all."""
        self.check_states()
        self.check_gpus()
        for uuid, slices in self.slices.items():
            if slices[-1][1] is None:
                fail(f"the last slice of {self.about[uuid].name} does not end")
            # Those of a GPU have gaps, where nobody runs.
            if not self.about[uuid].parent_uuid:
                continue
            for before, after in zip(slices, slices[1:]):
                if before[1] != after[0]:
                    fail(f"{self.about[uuid].name} has a gap between {before} and {after}")
        for flow, (begins, ends) in self.flows.items():
            if begins is None or ends is None or begins > ends:
                fail(f"flow {flow} leads from {begins} to {ends}")
        for uuid, about in self.about.items():
            if about.parent_uuid and about.parent_uuid not in self.about:
                fail(f"{about.name} has no parent")
            if about.HasField("counter") and uuid in self.slices:
                fail(f"{about.name} is a counter and has slices")


def main():
    trace = perfetto.Trace()
    with open(sys.argv[1], "rb") as file:
        trace.ParseFromString(file.read())
    if not trace.packet:
        fail("it has no packets")
    tracks = Tracks(trace)
    tracks.check()
    by_name = {}
    for uuid, about in tracks.about.items():
        parts = tracks.slices.get(uuid, []) or tracks.states.get(uuid, [])
        name = about.name.split(" (")[0]
        if about.HasField("state"):
            name = tracks.about[about.parent_uuid].name.split(" (")[0] + "/" + name
        by_name.setdefault(name, []).extend(parts)
        kind = next((kind for kind in ("counter", "state") if about.HasField(kind)), "slice") + "s"
        print(f"{about.name}: {len(parts) or len(tracks.counts.get(uuid, []))} {kind}")
    print(f"{len(tracks.flows)} flows")
    for wanted in sys.argv[2:]:
        track, text = wanted.split("=", 1)
        if not any(text in name for _, _, name in by_name.get(track, [])):
            names = sorted({name for _, _, name in by_name.get(track, [])})
            fail(f"track {track} has no slice '{text}', but {names}")


if __name__ == "__main__":
    main()
