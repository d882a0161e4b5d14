#!/usr/bin/env python3
"""Writes the completions of bash, zsh and fish from what the programs say with --help.

    packaging/help/completions.py BUILD FOLDER

FOLDER gets what an installation has below share/.
"""
import os
import re
import sys

from help_texts import ask_all

# Words that an option takes and its help does not list as "a|b".
WORDS = {"CLASS": ["high", "normal", "low"], "HOW": ["slices", "foreseen"]}
PATHS = {"PATH"}
JOBS = "switchyard ps --json 2> /dev/null | sed -n 's/^      \"name\": \"\\(.*\\)\",*$/\\1/p'"


def choices(row):
    """The values of an option or a positional, as far as they are words."""
    value = row.value
    if value in WORDS:
        return WORDS[value]
    if "|" in value:
        return [word for word in value.split("|") if word.islower()]
    # "priority, fair, exclusive or deadline; without it, ..."
    words = re.split(r", | or ", row.meaning.split(";")[0])
    return words if len(words) > 1 and all(re.fullmatch("[a-z]+", word) for word in words) else []


def takes_job(command):
    return any(row.head.split()[0] == "NAME" for row in command.positionals)


def words_of(command):
    return [word for row in command.positionals for word in choices(row)]


def takes_value(row):
    return bool(row.value) and not row.head.split()[1].startswith("[=")


def bash(commands):
    out = ["# bash completion for switchyard, made from --help", "", "_switchyard() {",
           "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}",
           "  local command=${COMP_WORDS[1]} options='' words='' i", "  COMPREPLY=()",
           "  if [ \"$COMP_CWORD\" -eq 1 ]; then",
           f"    words='{' '.join(c.words[1] for c in commands)} --help --version'",
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")", "    return", "  fi",
           "  for ((i = 2; i < COMP_CWORD; i++)); do",
           "    if [ \"${COMP_WORDS[i]}\" = -- ]; then",
           "      mapfile -t COMPREPLY < <(compgen -c -f -- \"$word\")", "      return", "    fi",
           "  done", "  case \"$command $before\" in"]
    for command in commands:
        for row in command.options:
            if not takes_value(row):
                continue
            pattern = " | ".join(f"'{command.words[1]} {name}'" for name in row.names)
            if row.value in PATHS:
                out.append(f"    {pattern}) mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); "
                           "return ;;")
            else:
                out.append(f"    {pattern}) mapfile -t COMPREPLY < <(compgen -W "
                           f"'{' '.join(choices(row))}' -- \"$word\"); return ;;")
    out += ["  esac", "  case \"$command\" in"]
    for command in commands:
        names = " ".join(name for row in command.options for name in row.names)
        words = f" words=$({JOBS})" if takes_job(command) else ""
        if words_of(command):
            words = f" words='{' '.join(words_of(command))}'"
        out.append(f"    {command.words[1]}) options='{names}'{words} ;;")
    out += ["  esac", "  if [ \"${word:0:1}\" = - ]; then words=$options; fi",
            "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")", "}",
            "complete -F _switchyard switchyard", ""]
    return "\n".join(out)


def quoted(text):
    """For zsh's _arguments, between single quotes."""
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


def zsh_rows(command):
    for row in command.options:
        names = row.names
        head = f"'({' '.join(names)})'{{{','.join(names)}}}'" if len(names) > 1 else f"'{names[0]}"
        action = ""
        if takes_value(row):
            values = "_files" if row.value in PATHS else f"({' '.join(choices(row))})"
            action = f":{quoted(row.value)}:{values}"
        yield f"{head}[{quoted(row.meaning)}]{action}'"
    if takes_job(command):
        yield "'1:job:_switchyard_jobs'"
    elif words_of(command):
        yield f"'1:word:({' '.join(words_of(command))})'"
    if command.words[1] == "run":
        yield "'*::command:_normal'"


def zsh(commands):
    out = ["#compdef switchyard", "# zsh completion for switchyard, made from --help", "",
           "_switchyard_jobs() {", "  local -a jobs", f"  jobs=(${{(f)\"$({JOBS})\"}})",
           "  _describe job jobs", "}", "", "_switchyard() {", "  local -a commands", "  commands=("]
    out += [f"    '{c.words[1]}:{quoted(c.about)}'" for c in commands]
    out += ["  )", "  if (( CURRENT == 2 )); then", "    _describe command commands", "    return",
            "  fi", "  local command=$words[2]", "  shift words", "  (( CURRENT-- ))",
            "  case $command in"]
    for command in commands:
        out += [f"    {command.words[1]})", "      _arguments -s \\"]
        out += [f"        {row} \\" for row in zsh_rows(command)]
        out[-1] = out[-1].removesuffix(" \\")
        out.append("      ;;")
    out += ["  esac", "}", "", "_switchyard \"$@\"", ""]
    return "\n".join(out)


def fish(commands):
    say = lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    out = ["# fish completion for switchyard, made from --help", "complete -c switchyard -f"]
    for command in commands:
        name = command.words[1]
        out.append(f"complete -c switchyard -n __fish_use_subcommand -a {name} "
                   f"-d {say(command.about)}")
        when = f"-n '__fish_seen_subcommand_from {name}'"
        for row in command.options:
            names = " ".join(f"-l {each[2:]}" if each.startswith("--") else f"-s {each[1:]}"
                             for each in row.names)
            values = ""
            if takes_value(row):
                values = " -r -F" if row.value in PATHS else f" -x -a '{' '.join(choices(row))}'"
            out.append(f"complete -c switchyard {when} {names}{values} -d {say(row.meaning)}")
        if takes_job(command):
            out.append(f"complete -c switchyard {when} -a {say('(' + JOBS + ')')}")
        elif words_of(command):
            out.append(f"complete -c switchyard {when} -a '{' '.join(words_of(command))}'")
        if name == "run":
            out.append(f"complete -c switchyard {when} -a '(__fish_complete_subcommand)'")
    return "\n".join(out) + "\n"


PLACES = {"bash-completion/completions/switchyard": bash,
          "zsh/site-functions/_switchyard": zsh,
          "fish/vendor_completions.d/switchyard.fish": fish}


def main(build, folder):
    _, commands, *_ = ask_all(build)
    for place, write in PLACES.items():
        path = os.path.join(folder, place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write(write(commands))


if __name__ == "__main__":
    main(*sys.argv[1:])
