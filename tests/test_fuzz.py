"""A few hundred inputs of the fuzzer, the same each time, and its promise to say how far it came when it is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

FUZZ = Path(__file__).parent / "fuzz.py"


def test_damaged_and_hostile_inputs_hold_what_the_fuzzer_checks() -> None:
    done = subprocess.run([sys.executable, FUZZ, "--count", "300", "--seed", "40"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.startswith("finished: 300 inputs")


def test_a_stopped_fuzzer_still_says_how_far_it_came() -> None:
    with subprocess.Popen([sys.executable, FUZZ, "--count", "1000000"], stdout=subprocess.PIPE, text=True) as fuzzer:
        time.sleep(2)
        fuzzer.send_signal(signal.SIGTERM)
        out, _ = fuzzer.communicate(timeout=30)
    assert out.startswith("stopped: ")
