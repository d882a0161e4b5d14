#!/usr/bin/env python3
"""Checks packaging/kubernetes without a cluster.

    scripts/check_kubernetes.py

Each file must be what the published schemas of Kubernetes say. The policies' expressions are
evaluated by cel-python, as an API server would, for pods with each annotation. It needs the modules
of tests/python/requirements.txt: scripts/bootstrap.sh --packages fetches them. An API server checks
types, too, and is stricter than cel-python: this check can't see that.
"""
import copy
import pathlib
import sys

import celpy
import kubernetes_validate
import yaml

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "packaging/kubernetes"
VERSIONS = ("1.36", "1.37")  # the first that has the policies as v1, and the newest schemas
LIBRARY = "/usr/lib/switchyard"
ENTRYPOINT = LIBRARY + "/switchyard-entrypoint"


def documents(name):
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]


def validate(document):
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)


class Patch(celpy.celtypes.MapType):
    """JSONPatch{...} of the expressions."""


class Policy:
    """A policy, evaluated for one pod in a namespace with labels."""

    def __init__(self, document):
        self.spec = document["spec"]
        self.environment = celpy.Environment(annotations={"JSONPatch": Patch})

    def evaluate(self, expression, activation):
        program = self.environment.program(self.environment.compile(expression))
        return program.evaluate(activation)

    def selects(self, labels):
        selector = self.spec["matchConstraints"].get("namespaceSelector", {})
        for each in selector.get("matchExpressions", []):
            there = labels.get(each["key"]) in each["values"]
            if there != {"In": True, "NotIn": False}[each["operator"]]:
                return False
        return True

    def activation(self, pod, labels):
        """None: the policy does not act on this pod."""
        if not self.selects(labels):
            return None
        given = {"JSONPatch": Patch, "object": celpy.json_to_cel(pod), "namespaceObject":
                 celpy.json_to_cel({"metadata": {"name": "lab", "labels": labels}})}
        for condition in self.spec["matchConditions"]:
            if not self.evaluate(condition["expression"], given):
                return None
        variables = celpy.celtypes.MapType()
        given["variables"] = variables
        for each in self.spec["variables"]:
            variables[celpy.celtypes.StringType(each["name"])] = self.evaluate(
                each["expression"], given)
        return given


def plain(value):
    """A value of CEL as Python has it. Its encoder for JSON passes the sum of two lists by."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return bool(value) if isinstance(value, celpy.celtypes.BoolType) else str(value)


def add(document, path, value):
    """RFC 6902's "add"."""
    *way, last = path.split("/")[1:]
    for step in way:
        document = document[int(step)] if isinstance(document, list) else document[step]
    if not isinstance(document, list):
        document[last] = value
    elif last == "-":
        document.append(value)
    else:
        document.insert(int(last), value)


def mutate(policy, pod, labels):
    given = policy.activation(pod, labels)
    out = copy.deepcopy(pod)
    for mutation in policy.spec["mutations"] if given else []:
        patches = policy.evaluate(mutation["jsonPatch"]["expression"], given)
        for patch in plain(patches):
            assert patch["op"] == "add", patch
            add(out, patch["path"], patch["value"])
    return out


def refusals(policy, pod, labels):
    given = policy.activation(pod, labels)
    out = []
    for each in policy.spec["validations"] if given else []:
        if not policy.evaluate(each["expression"], given):
            message = each.get("messageExpression")
            out.append(str(policy.evaluate(message, given)) if message else each["message"])
    return out


SHARED = {"switchyard.io/pods": "shared"}


def pod_with(annotations, *containers, volumes=None):
    """A pod with two containers, unless others are given."""
    spec = {"containers": list(containers) or [
        {"name": "main", "image": "x", "command": ["python", "train.py"]},
        {"name": "other", "image": "y", "command": ["sh"], "env": [{"name": "A", "value": "1"}],
         "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}
    if volumes or not containers:
        spec["volumes"] = volumes or [{"name": "data", "emptyDir": {}}]
    out = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    if annotations:
        out["metadata"]["annotations"] = annotations
    return out


def variables_of(container):
    """As a container gets them: of two with one name the last."""
    return {each["name"]: each.get("value", each.get("valueFrom", {}).get("fieldRef", {})
                                   .get("fieldPath")) for each in container.get("env", [])}


class Check:
    def __init__(self):
        mutating, _, validating, _ = documents("admission.yaml")
        self.mutating, self.validating = Policy(mutating), Policy(validating)
        self.checks = 0

    def equal(self, what, is_, must):
        self.checks += 1
        if is_ != must:
            sys.exit(f"check_kubernetes: {what}: is {is_!r}, must be {must!r}")

    def admitted(self, pod, labels=None):
        """The pod as it would run; it must be a valid one, and refused by nothing."""
        labels = SHARED if labels is None else labels
        out = mutate(self.mutating, pod, labels)
        validate(out)
        self.equal(f"refusals of {pod['metadata']}", refusals(self.validating, out, labels), [])
        return out

    def refused(self, what, pod, labels, *words):
        said = refusals(self.validating, mutate(self.mutating, pod, labels), labels)
        self.equal(f"{what} is refused for one reason", len(said), 1)
        for word in words:
            self.equal(f"'{word}' in '{said[0]}'", word in said[0], True)

    def gets(self, annotations, **must):
        """What the first container gets by these annotations, beside what each gets."""
        container = self.admitted(pod_with(annotations))["spec"]["containers"][0]
        always = {"SWITCHYARD_SOCKET": "/run/switchyard/monitor.sock", "SWITCHYARD_REQUIRE": "1",
                  "SWITCHYARD_JOB": "metadata.uid", "SWITCHYARD_NAME": "metadata.name"}
        self.equal(f"variables by {annotations}", variables_of(container),
                   always | {"SWITCHYARD_" + name: value for name, value in must.items()})
        self.equal(f"variables twice by {annotations}", len(container["env"]),
                   len(variables_of(container)))

    def each_annotation(self):
        self.gets({"switchyard.io/priority": "low"}, PRIORITY="low")
        self.gets({"switchyard.io/share": "3"}, SHARE="3")
        self.gets({"switchyard.io/limit": "50%"}, LIMIT="50%")
        self.gets({"switchyard.io/memory": "20GiB"}, MEMORY="20GiB")
        self.gets({"switchyard.io/idle-release": "10m"}, IDLE_RELEASE="10m")
        self.gets({"switchyard.io/oversubscribe": "yes"}, OVERSUBSCRIBE="yes")
        self.gets({"gpu-fraction": "0.5"}, SHARE="0.5")
        self.gets({"gpu-memory": "2000"}, MEMORY="2000MiB")
        # Ours win over KAI's.
        self.gets({"gpu-memory": "2000", "gpu-fraction": "0.5", "switchyard.io/memory": "1GiB",
                   "switchyard.io/share": "2", "switchyard.io/priority": "high"},
                  MEMORY="1GiB", SHARE="2", PRIORITY="high")

    def whole_pods(self):
        plain = pod_with({"switchyard.io/memory": "1GiB"})
        spec = self.admitted(plain)["spec"]
        self.equal("the volumes", spec["volumes"], [
            {"name": "data", "emptyDir": {}},
            {"name": "switchyard-library", "hostPath": {"path": LIBRARY, "type": "Directory"}},
            {"name": "switchyard-socket",
             "hostPath": {"path": "/run/switchyard", "type": "Directory"}}])
        mounts = [{"name": "switchyard-library", "mountPath": LIBRARY, "readOnly": True},
                  {"name": "switchyard-socket", "mountPath": "/run/switchyard", "readOnly": True}]
        main, other = spec["containers"]
        self.equal("the mounts", main["volumeMounts"], mounts)
        self.equal("the command", main["command"], [ENTRYPOINT, "python", "train.py"])
        self.equal("the other container", other, plain["spec"]["containers"][1])
        # A container by its name, and what it had.
        for name in ("switchyard.io/container", "gpu-fraction-container-name"):
            main, other = self.admitted(pod_with({"gpu-memory": "5", name: "other"}))["spec"][
                "containers"]
            self.equal("the first container", main, plain["spec"]["containers"][0])
            self.equal("its mounts", other["volumeMounts"],
                       [{"name": "data", "mountPath": "/data"}] + mounts)
            self.equal("its variables", {"A": "1", "SWITCHYARD_MEMORY": "5MiB"}.items() <=
                       variables_of(other).items(), True)
        for length, named in ((63, True), (64, False)):
            pod = pod_with({"gpu-memory": "5"})
            pod["metadata"]["name"] = length * "p"
            own = variables_of(self.admitted(pod)["spec"]["containers"][0])
            self.equal(f"a name of {length}", "SWITCHYARD_NAME" in own, named)
            self.equal(f"the job of a pod with a name of {length}", own["SWITCHYARD_JOB"],
                       "metadata.uid")
        # Nothing there to add to; and a variable of the pod's own wins.
        bare = {"name": "only", "image": "x", "command": ["a"]}
        self.equal("mounts of a bare pod", self.admitted(pod_with(
            {"gpu-memory": "5"}, bare))["spec"]["containers"][0]["volumeMounts"], mounts)
        own = dict(bare, env=[{"name": "SWITCHYARD_MEMORY", "value": "7GiB"}])
        self.equal("the pod's own variable", variables_of(self.admitted(pod_with(
            {"gpu-memory": "5"}, own))["spec"]["containers"][0])["SWITCHYARD_MEMORY"], "7GiB")

    def left_alone(self):
        for annotations in (None, {"other": "x"}):
            pod = pod_with(annotations)
            self.equal("a pod that asks for nothing", self.admitted(pod), pod)
        once = self.admitted(pod_with({"gpu-memory": "5"}))
        self.equal("a pod that has been here", self.admitted(once), once)
        # KAI's pods elsewhere stay as they are.
        for labels in ({}, {"pod-security.kubernetes.io/enforce": "restricted"}):
            pod = pod_with({"gpu-fraction": "0.5"})
            self.equal("a pod of KAI", self.admitted(pod, labels), pod)

    def refused_pods(self):
        ours = pod_with({"switchyard.io/memory": "1GiB"})
        self.refused("a namespace without the label", add_entrypoint(ours), {},
                     "namespace 'lab'", "kubectl label namespace lab switchyard.io/pods=shared")
        for level in ("baseline", "restricted"):
            labels = SHARED | {"pod-security.kubernetes.io/enforce": level}
            self.equal(f"a pod in {level}", mutate(self.mutating, ours, labels), ours)
            self.refused(f"a namespace of {level}", add_entrypoint(ours), labels,
                         "namespace 'lab'", f"'{level}'", "hostPath")
        self.equal("a namespace of privileged", self.admitted(
            ours, SHARED | {"pod-security.kubernetes.io/enforce": "privileged"}) != ours, True)
        self.refused("an unknown annotation", pod_with({"switchyard.io/memroy": "1GiB"}), SHARED,
                     "'switchyard.io/memroy'")
        self.refused("a bad priority", pod_with({"switchyard.io/priority": "highest"}), SHARED,
                     "high, normal and low")
        self.refused("no command", pod_with({"switchyard.io/memory": "1GiB"},
                                            {"name": "only", "image": "x"}), SHARED,
                     "container 'only' names no command")
        self.refused("no such container", pod_with({"switchyard.io/container": "none"}), SHARED,
                     "has no container 'none'")

    def all(self):
        for path in sorted(FOLDER.glob("*.yaml")):
            for document in documents(path.name):
                validate(document)
                self.checks += 1
        self.admitted(documents("pod.yaml")[0])
        self.each_annotation()
        self.whole_pods()
        self.left_alone()
        self.refused_pods()
        self.bites()
        print(f"check_kubernetes: all is well ({self.checks} checks)")

    def bites(self):
        """The schemas find a misspelt field."""
        broken = documents("monitor.yaml")[1]
        broken["spec"]["template"]["spec"]["hostPid"] = True
        try:
            validate(broken)
        except kubernetes_validate.ValidationError:
            return
        sys.exit("check_kubernetes: the schemas let a misspelt field pass")


def add_entrypoint(pod):
    """So that its command is no second reason to refuse it."""
    out = copy.deepcopy(pod)
    out["spec"]["containers"][0]["command"].insert(0, ENTRYPOINT)
    return out


Check().all()
