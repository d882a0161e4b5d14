#!/usr/bin/env python3
"""Prints the queries of a Grafana dashboard as rules of Prometheus, for promtool to check.

    scripts/dashboard_queries.py DASHBOARD.json > queries.yml && promtool check rules queries.yml

Grafana's variables become what they might be. Rules are written as JSON, which YAML contains.
"""

import json
import re
import sys

VARIABLES = {"$__rate_interval": "1m", "$__range": "6h", "$hostname": ".*", "$gpu": ".*"}


def queries(panels):
    for panel in panels:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
        yield from queries(panel.get("panels", []))


def filled(query):
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    left = re.search(r"\$\w+", query)
    if left:
        sys.exit(f"dashboard_queries: {left.group()} in '{query}' is no variable that VARIABLES has")
    return query


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        dashboard = json.load(file)
    rules = [{"record": f"dashboard:query{number}", "expr": filled(query), "labels": {"panel": title}}
             for number, (title, query) in enumerate(queries(dashboard["panels"]))]
    if not rules:
        sys.exit("dashboard_queries: the dashboard has no query")
    json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
