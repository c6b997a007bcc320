"""A wrong argument is reported before torch is imported, wherever no model is needed for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# Each command line runs in a fork of one process that has imported the command line and no torch.
RUN = """
import json, os, shlex, sys, traceback
from interp.cli.main import main
from interp.core.registry import REGISTRIES

read = [list(known.values()) for known in REGISTRIES], [main.commands[x] for x in main.commands]
for line in json.load(sys.stdin):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.dup2(writer, 2)
        code = "none"
        try:
            main(shlex.split(line), prog_name="interp")
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os.write(2, json.dumps([code, "torch" in sys.modules]).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as said:
        *lines, last = said.read().splitlines()
    os.wait()
    print(json.dumps([line, lines, *json.loads(last)]), file=sys.__stdout__, flush=True)
"""
MODEL = "bundled:induction"
WRONG = f"""
score planted:nosuch                          | unknown planted model 'nosuch'
score bundled:nosuch                          | unknown bundled model 'nosuch'
score ./nowhere                               | nowhere does not exist
score afile                                   | afile is not a folder
score folder                                  | folder has no config.json
score a/b/c                                   | 'a/b/c' is neither a folder nor a model
score nobody/nosuch                           | 'nobody/nosuch' is neither a folder nor a model
score planted:nosuch ./nowhere                | 2 of 2 models failed
compare planted:nosuch {MODEL}                  | unknown planted model 'nosuch'
match {MODEL} planted:nosuch                    | unknown planted model 'nosuch'
emergence planted:nosuch                        | unknown planted model 'nosuch'
record planted:nosuch --prompt-file texts.txt -o x | unknown planted model 'nosuch'
score {MODEL} -m inducton                     | unknown metric 'inducton'
score {MODEL} -m local_window:width=x         | width='x' is not a whole number
score {MODEL} -m local_window:widht=3         | option of local_window 'widht'
score {MODEL} -m nowhere.py                   | nowhere.py does not exist
score {MODEL} --null nosuch                   | '--null'
score {MODEL} --null-draws 0                  | '--null-draws'
score {MODEL} --engine x                      | '--engine'
score {MODEL} --by nosuch                     | '--by'
score {MODEL} --context 1                     | '--context'
score {MODEL} --source nosuch                 | '--source'
score {MODEL} --dtype float3                  | '--dtype'
score {MODEL} --device quantum                | device 'quantum' cannot be used
score {MODEL} --device cuda:x                 | device 'cuda:x' cannot be used
score {MODEL} --import nowhere.py             | --import nowhere.py: there is no such file
score {MODEL} --prompt-file nowhere.txt       | nowhere.txt is not a file
score {MODEL} --prompt-file bytes.txt         | bytes.txt is not UTF-8 text
score {MODEL} --prompt-file empty.txt         | empty.txt holds no text
score {MODEL} --image nowhere.png             | 'nowhere.png' does not exist
score {MODEL} --text a                        | --text needs --image or --audio
score {MODEL} --image afile --audio afile     | cannot be combined
score {MODEL} --image afile --context 9       | exclude --prompt-file and --context
score {MODEL} --config nowhere.toml           | --config: nowhere.toml cannot be read: No such file
score {MODEL} --config bad.toml               | bad.toml is not valid TOML
score {MODEL} -o afile                        | afile is a file, not a folder
score {MODEL} -o afile/below                  | afile is a file, not a folder
explore planted:nosuch                        | unknown planted model 'nosuch'
explore bundled:induction bundled:one-layer   | are 2 models; one is held in memory, so give one
atlas planted:nosuch                          | unknown planted model 'nosuch'
atlas {MODEL} -m inducton                     | unknown metric 'inducton'
atlas {MODEL} --keep afile                    | afile is a file, not a folder
check planted:nosuch                          | unknown planted model 'nosuch'
check afile                                   | afile is not a folder
tokens 'a b' --model planted:nosuch           | unknown planted model 'nosuch'
tokens --model {MODEL}                        | TEXT
anchors planted:nosuch                        | unknown planted model 'nosuch'
anchors {MODEL} nowhere.txt                   | nowhere.txt is not a file
anchors {MODEL} empty.txt                     | empty.txt holds no text
anchors {MODEL} texts.txt --way resampling    | give it with --answer
anchors {MODEL} texts.txt --heads 0           | 0 is not in the range x>=1
attention-graph planted:nosuch                | unknown planted model 'nosuch'
attention-graph {MODEL} --edges nowhere.txt   | nowhere.txt is not a file
attention-graph {MODEL} a --edges texts.txt   | not both
attention-graph {MODEL} --over sum            | '--over'
cache planted:nosuch                          | unknown planted model 'nosuch'
cache {MODEL} nowhere                         | nowhere
pictures planted:nosuch -m sinks --image afile | unknown planted model 'nosuch'
pictures {MODEL} -m nosuch                    | '--method'
pictures {MODEL} -m sinks                     | give the pictures by --image
pictures {MODEL} -m grounding --image afile   | 0 --answer for 1 pictures
pictures {MODEL} -m sinks --image afile --text a --text b | 2 --text for 1 files
sources planted:nosuch                        | unknown planted model 'nosuch'
sources {MODEL} texts.txt                     | with --answer
sources {MODEL} nowhere.txt --answer x        | nowhere.txt is not a file
sources {MODEL} --known none                  | leaves nothing to do
sources {MODEL} --way nosuch                  | 'nosuch'
steer planted:nosuch --heads L0H0            | unknown planted model 'nosuch'
steer {MODEL}                                 | --heads
steer {MODEL} --heads L0H0 --factors nan      | finite numbers
steer {MODEL} --heads L0H0 --factors x        | give numbers
steer {MODEL} --heads L0H0 --how nosuch       | '--how'
gates planted:nosuch                          | unknown planted model 'nosuch'
gates {MODEL} --method nosuch                 | '--method'
trace planted:nosuch                          | unknown planted model 'nosuch'
trace {MODEL} nowhere.jsonl                   | nowhere.jsonl
trace {MODEL} empty.txt                       | empty.txt holds no text
trace {MODEL} --site heads                    | '--site'
trace {MODEL} --noise 0                       | '--noise'
verify-certificate nowhere                    | 'nowhere' does not exist
probe nowhere.jsonl planted:nosuch            | unknown planted model 'nosuch'
categories nowhere.jsonl planted:nosuch       | unknown planted model 'nosuch'
ablate planted:nosuch                         | unknown planted model 'nosuch'
ablate {MODEL} --kind nosuch                  | '--kind'
ablate {MODEL} --kind mean-dataset            | needs user-supplied prompts
ablate {MODEL} --task nosuch                  | task 'nosuch' is not known
ablate {MODEL} --task nowhere.txt             | the task file nowhere.txt does not exist
ablate {MODEL} --task bytes.txt               | bytes.txt is not UTF-8 text
ablate {MODEL} --task bad.jsonl               | bad.jsonl line 1 is not valid JSON
ablate {MODEL} --measure accuracy             | the task repeats measures the loss
ablate {MODEL} --heads x                      | 'x'
ablate {MODEL} -o afile                       | afile is a file, not a folder
shapley ./nowhere                             | nowhere does not exist
shapley {MODEL} --value per-layer --sem 0.1   | per-layer values are exact
importance bundled:nosuch                     | unknown bundled model 'nosuch'
importance {MODEL} -m nosuch                  | 'nosuch'
prune planted:nosuch                          | unknown planted model 'nosuch'
prune {MODEL} --keep 3                        | need --save DIR
prune {MODEL} --repair 3                      | need --save DIR
prune {MODEL} --save new                      | --save needs one of
prune {MODEL} --keep 3 --save texts.txt       | texts.txt exists already
prune {MODEL} --keep 3 --rounds 2 --save new  | --rounds needs --keep and --repair
prune {MODEL} --keep 3 --repair-rate 1 --save new | --repair-rate needs --repair
prune {MODEL} --keep 0 --save new             | '--keep'
prune {MODEL} --heads x --save new            | 'x'
verify planted:nosuch -m induction            | unknown planted model 'nosuch'
verify {MODEL} -m local_window:width=x        | width='x' is not a whole number
pairs planted:nosuch texts.txt                | unknown planted model 'nosuch'
pairs {MODEL} bad.toml                        | bad.toml is not valid TOML
pairs {MODEL} texts.txt -o x.doc              | file format of pairs
circuit bad.toml {MODEL}                      | bad.toml is not valid TOML
circuit induction planted:nosuch              | unknown planted model 'nosuch'
circuit nowhere.jsonl {MODEL}                 | nowhere.jsonl cannot be read
circuit induction {MODEL} --method nosuch     | 'nosuch'
circuit induction {MODEL} --faithful 2        | 2.0 is not in the range 0<x<1
circuit induction {MODEL} --size 0            | 0 is not in the range x>=1
circuit induction {MODEL} --map pos           | 'pos' is not one of
circuit induction {MODEL} --truth nosuch      | 'nosuch'
circuit induction {MODEL} --circuit no.toml   | no.toml cannot be read
path induction planted:nosuch --route '0.0>1.0' | unknown planted model 'nosuch'
path induction {MODEL}                        | --route
qk-shares planted:nosuch L0H0                 | unknown planted model 'nosuch'
loadings planted:nosuch L0H0                  | unknown planted model 'nosuch'
graph planted:nosuch 'a b'                    | unknown planted model 'nosuch'
dictionary planted:nosuch --layer 0           | unknown planted model 'nosuch'
dictionary {MODEL}                            | --layer
dictionary {MODEL} --load nowhere             | nowhere
qk-shares {MODEL} x                           | 'x'
attribute 'a b' --model planted:nosuch        | unknown planted model 'nosuch'
attribute 'a b' --model {MODEL} -m nosuch     | 'nosuch'
attribute --model {MODEL}                     | give one TEXT, or --file
attribute --file bytes.txt --model {MODEL}    | bytes.txt is not UTF-8 text
flow 'a b' --model ./nowhere                  | nowhere does not exist
flow 'a b' --model {MODEL} --output x         | output 'x' is not a position
flow --file empty.txt --model {MODEL}         | empty.txt holds no text
faithfulness texts.txt --model planted:nosuch | unknown planted model 'nosuch'
faithfulness nowhere.txt --model {MODEL}      | nowhere.txt cannot be read
similarity a b --model planted:nosuch         | unknown planted model 'nosuch'
similarity a b --model {MODEL} --pool max     | '--pool'
difference texts.txt --model planted:nosuch   | unknown planted model 'nosuch'
difference nowhere.txt --model {MODEL}        | nowhere.txt cannot be read
lens a --model planted:nosuch                 | unknown planted model 'nosuch'
lens --model {MODEL}                          | give a TEXT, or --tune FILE
lens --model {MODEL} --tune nowhere.txt       | nowhere.txt cannot be read
head-weights texts.txt --model planted:nosuch | unknown planted model 'nosuch'
head-weights texts.txt --model {MODEL} --ablations 1 | '--ablations'
sanity texts.txt --model planted:nosuch       | unknown planted model 'nosuch'
sanity texts.txt --model {MODEL} -m nosuch    | 'nosuch'
plausibility texts.txt --model planted:nosuch | unknown planted model 'nosuch'
influence planted:nosuch texts.txt            | unknown planted model 'nosuch'
influence {MODEL} bytes.txt -m induction      | bytes.txt is not UTF-8 text
influence {MODEL} texts.txt                   | name the heads with --heads
safety planted:nosuch                         | unknown planted model 'nosuch'
safety bundled:refusal --harmful texts.txt    | must be given together
safety bundled:refusal --template x           | --template applies to
safety bundled:refusal --harmful no --harmless no | no cannot be read
align planted:nosuch                          | unknown planted model 'nosuch'
align bundled:reorder bad.jsonl               | bad.jsonl, line 1: not JSON
align bundled:reorder --rows x                | '--rows'
speech planted:nosuch                         | unknown planted model 'nosuch'
speech bundled:reorder                        | give RECORDINGS.jsonl, or --audio with --text
speech bundled:reorder bad.jsonl              | bad.jsonl, line 1: not JSON
speech bundled:reorder --audio afile          | 0 --text for 1 --audio
trees planted:nosuch                          | unknown planted model 'nosuch'
trees {MODEL} --treebank nowhere.conllu       | nowhere.conllu is not a file
vision planted:nosuch                         | unknown planted model 'nosuch'
vision bundled:shapes --only nosuch           | unknown measure 'nosuch'
vision bundled:shapes --images nowhere        | 'nowhere' does not exist
vision bundled:shapes --map rolout            | did you mean rollout
view planted:nosuch --text a                  | unknown planted model 'nosuch'
view {MODEL} --prompt-file nowhere.txt        | nowhere.txt cannot be read
view {MODEL} --text a --heads x               | 'x'
view {MODEL} --text a --show nosuch           | '--show'
methods nosuch                                | 'nosuch'
metrics nosuch                                | 'nosuch'
completion nosuch                             | 'nosuch'
"""
CASES = [tuple(map(str.strip, line.split(" | "))) for line in WRONG.strip().splitlines()]
COMMANDS = list(dict.fromkeys(command.split()[0] for command, _ in CASES))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Present folder with the files that the commands name."""
    (tmp_path / "texts.txt").write_text("a b c\n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\xfa")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "bad.jsonl").write_text("{\n")
    (tmp_path / "bad.toml").write_text("= 3\n")
    (tmp_path / "afile").write_text("x")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_wrong_argument_is_reported_without_torch(here) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps([line for line, _ in CASES]),
        capture_output=True, text=True, timeout=600, check=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    results = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("[")]
    assert [line for line, *_ in results] == [line for line, _ in CASES]
    wrong = [
        (line, code, torch, told)
        for (line, told, code, torch), (_, message) in zip(results, CASES, strict=True)
        if code not in (1, 2) or torch or message not in " ".join(told) or "Traceback" in str(told)
    ]
    assert wrong == []


def test_every_command_that_takes_a_model_is_in_the_table() -> None:
    from interp.cli.main import main

    without = {"models", "results"}  # take no model
    assert set(main.commands) - without == set(COMMANDS)


def test_too_little_memory_for_one_row_is_told_before_the_run(
    errors, llama_folder, monkeypatch
) -> None:
    monkeypatch.setattr("interp.heads.estimate.free_memory", lambda device: 2000)
    monkeypatch.setattr("interp.cli.batch.score_each", None)  # nothing runs
    code, [told, _] = errors("score", llama_folder, "-m", "entropy", "--null", "none")
    assert code == 1
    assert "need at least" in told
    assert "2 KiB are free; score fewer metrics at a time, shorten the prompts" in told
