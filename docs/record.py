#!/usr/bin/env python3
"""Records a program in a terminal of its own and writes what it showed as an animated SVG.

    docs/record.py docs/demo.svg -- target/debug/queuectl demo
    docs/record.py docs/dash.svg --size 92x24 --keys "4 j 2 Enter ..." -- target/debug/queuectl dash

With --keys it is driven: a number waits so many seconds, Enter and Esc are keys, other words are typed.

The picture is made from the program's real output and its real times. It needs nothing but Python 3 on a Unix
system. Viewers without animation, and readers who asked for less motion, see the last state.
"""

import argparse
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
import unicodedata
from html import escape

COLUMNS, LINES = 92, 120
CELL_W, CELL_H, FONT, PAD = 8.0, 18, 13, 14
HOLD = 8.0  # seconds the last state stays before the film begins again
FOREGROUND, BACKGROUND = "#d0d7de", "#0d1117"
COLOURS = {30: "#484f58", 37: "#b1bac4", 31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#56d4dd"}
CSI = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    """As much of a terminal as the programs use: text, colours, moves of the cursor, erasing."""

    def __init__(self, columns, lines):
        self.columns, self.lines = columns, lines
        self.cells = self.blank()
        self.row = self.column = 0
        self.style = ()

    def blank(self):
        return [[(" ", ())] * self.columns for _ in range(self.lines)]

    def feed(self, text):
        at = 0
        while at < len(text):
            found = CSI.match(text, at)
            if found:
                self.control(found.group(1), found.group(2))
                at = found.end()
                continue
            self.write(text[at])
            at += 1

    def write(self, char):
        if char == "\n":
            self.row += 1
            if self.row >= self.lines:
                sys.exit(f"the program wrote more than {self.lines} lines")
        elif char == "\r":
            self.column = 0
        elif char >= " " and self.column < self.columns:
            if unicodedata.east_asian_width(char) in "WF":
                sys.exit(f"{char!r} is wider than a cell, which this script does not know")
            self.cells[self.row][self.column] = (char, self.style)
            self.column += 1

    def control(self, arguments, command):
        numbers = [int(number) for number in arguments.lstrip("?").split(";") if number]
        if command == "m":
            self.style = styled(self.style, numbers or [0])
        elif command == "A":
            self.row = max(0, self.row - (numbers or [1])[0])
        elif command == "H":
            self.row, self.column = (numbers[0] - 1, numbers[1] - 1) if len(numbers) == 2 else (0, 0)
        elif command == "J" and numbers == [2]:
            self.cells = self.blank()
        elif command == "K":
            self.cells[self.row][self.column :] = [(" ", ())] * (self.columns - self.column)
        elif command not in "hl":
            sys.exit(f"escape sequence {arguments}{command} is not known to this script")

    def rows(self):
        return [tuple(row) for row in self.cells]


def styled(style, numbers):
    """The style after these SGR parameters; colours are kept as 30 to 37."""
    style, numbers = set(style), list(numbers)
    while numbers:
        number = numbers.pop(0)
        if number == 38 and numbers[:1] == [5]:
            number = 30 + numbers[1] % 8
            del numbers[:2]
        if number == 0:
            style.clear()
        elif number == 22:
            style -= {1, 2}
        elif number == 27:
            style.discard(7)
        elif 30 <= number <= 39:
            style = {old for old in style if old < 30} | ({number} if number < 38 else set())
        elif number not in (49, 59):
            style.add(number)
    return tuple(sorted(style))


def steps_of(keys):
    """Times from the start, in seconds, and what is typed then."""
    at, steps = 0.0, []
    for word in keys.split():
        try:
            at += float(word)
        except ValueError:
            steps.append((at, {"Enter": b"\r", "Esc": b"\x1b"}.get(word, word.encode())))
    return steps


def record(command, columns, lines, keys):
    """Runs the command; returns what its screen looked like, with times, and its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(lines))
        os.environ.pop("NO_COLOR", None)
        # The child waits until its terminal has a size.
        time.sleep(0.1)
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    screen, frames, pending = Screen(columns, lines), [], b""
    started, steps = None, steps_of(keys)
    while True:
        wait = max(0.0, started + steps[0][0] - time.monotonic()) if started is not None and steps else None
        if not select.select([terminal], [], [], wait)[0]:
            os.write(terminal, steps.pop(0)[1])
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        now = time.monotonic()
        started = now if started is None else started
        pending += data
        # Only whole characters and whole escape sequences: up to the end of a line or of an update.
        end = max([pending.rfind(mark) + len(mark) for mark in (b"\n", b"\x1b[?2026l") if mark in pending], default=0)
        if end > 0:
            screen.feed(pending[:end].decode())
            pending = pending[end:]
            frames.append((now - started, screen.rows()))
    screen.feed(pending.decode())
    frames.append(((frames[-1][0] if frames else 0.0), screen.rows()))
    _, status = os.waitpid(child, 0)
    return frames, os.waitstatus_to_exitcode(status)


def reversed_runs(row):
    """Stretches that are shown as light on dark: (column, length)."""
    found = re.finditer("1+", "".join("1" if 7 in style else "0" for _, style in row))
    return [(stretch.start(), stretch.end() - stretch.start()) for stretch in found]


def runs(row):
    """The row as stretches of one style: (column, text, style)."""
    stretches = []
    for column, (char, style) in enumerate(row):
        if stretches and stretches[-1][2] == style:
            stretches[-1][1] += char
        else:
            stretches.append([column, char, style])
    for column, text, style in stretches:
        # Wide gaps are left out, so that no viewer has to know how wide a blank is.
        for part in re.finditer(r"\S+(?: \S+)*", text):
            yield column + part.start(), part.group(), style


def draw(row, y):
    text = []
    for column, length in reversed_runs(row):
        x, width = PAD + column * CELL_W, length * CELL_W
        text.append(f'<rect x="{x:g}" y="{y - FONT:g}" width="{width:g}" height="{CELL_H}" fill="{FOREGROUND}"/>')
    for column, part, style in runs(row):
        colour = next((COLOURS[number] for number in style if number in COLOURS), None)
        colour = BACKGROUND if 7 in style else colour
        look = f' fill="{colour}"' if colour else ""
        look += ' font-weight="bold"' if 1 in style else ""
        look += ' opacity="0.6"' if 2 in style else ""
        x, width = PAD + column * CELL_W, len(part) * CELL_W
        text.append(f'<text x="{x:g}" y="{y:g}" textLength="{width:g}"{look}>{escape(part)}</text>')
    return "".join(text)


def svg(frames, stop, title):
    last = frames[-1][1]
    height = next((n for n, row in enumerate(last) if stop and stop in "".join(char for char, _ in row)), None)
    if height is None:
        height = max(n for n, row in enumerate(last) if any(char != " " for char, _ in row)) + 1
    while height and all(char == " " for char, _ in last[height - 1]):
        height -= 1
    total = frames[-1][0] + HOLD
    styles, groups = [], []
    for n in range(height):
        # The states of this row, each with the time at which it begins.
        states = []
        for at, rows in frames:
            if not states or states[-1][1] != rows[n]:
                states.append((at, rows[n]))
        y = PAD + n * CELL_H + FONT
        for index, (begin, row) in enumerate(states):
            drawn = draw(row, y)
            if not drawn:
                continue
            is_last = index == len(states) - 1
            if is_last and index == 0:
                groups.append(f"<g>{drawn}</g>")
                continue
            end = total if is_last else states[index + 1][0]
            name = f"s{len(styles)}"
            steps = [f"0%{{visibility:{'visible' if begin == 0 else 'hidden'}}}"]
            if begin > 0:
                steps.append(f"{100 * begin / total:.2f}%{{visibility:visible}}")
            if not is_last:
                steps.append(f"{100 * end / total:.2f}%{{visibility:hidden}}")
            styles.append(f"@keyframes {name}{{{''.join(steps)}}}.{name}{{animation-name:{name}}}")
            groups.append(f'<g class="a {name}"{"" if is_last else " visibility=" + chr(34) + "hidden" + chr(34)}>{drawn}</g>')
    width, tall = 2 * PAD + len(last[0]) * CELL_W, 2 * PAD + height * CELL_H
    film = f".a{{animation-duration:{total:.2f}s;animation-timing-function:step-end;animation-iteration-count:infinite}}"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {tall:g}" width="{width:g}" height="{tall:g}"'
        f' font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,\'DejaVu Sans Mono\',monospace" font-size="{FONT}"'
        f' fill="{FOREGROUND}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<style>@media (prefers-reduced-motion:no-preference){{{film}{''.join(styles)}}}</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        *groups,
        "</svg>",
        "",
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    parser.add_argument("--stop-before", default="", help="leave out the lines from this text on")
    parser.add_argument("--title", default="")
    parser.add_argument("--size", default=f"{COLUMNS}x{LINES}", help="columns and lines of the terminal")
    parser.add_argument("--keys", default="", help="what is typed, and when")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    columns, lines = map(int, arguments.size.split("x"))
    frames, code = record(arguments.command, columns, lines, arguments.keys)
    if code != 0:
        sys.exit(f"{arguments.command[0]} ended with {code}; nothing was written")
    picture = svg(frames, arguments.stop_before, arguments.title or " ".join(arguments.command))
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(picture)
    print(f"{arguments.output}: {len(frames)} states, {frames[-1][0]:.1f} s, {len(picture)} bytes")


if __name__ == "__main__":
    main()
