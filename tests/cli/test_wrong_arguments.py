"""A wrong argument is reported before torch is imported, wherever no model is needed for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from fixtures.commands import called

from interp.cli.folder import leaves
from interp.cli.main import main

# Each command line runs in a fork of one process that has imported the command line and no torch.
RUN = """
import json, os, shlex, sys, traceback
from interp.cli.main import main
from interp.core.registry import REGISTRIES

from interp.cli.folder import leaves

read = [list(known.values()) for known in REGISTRIES], list(leaves(main, "interp"))
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
score planted:nosuch ./nowhere afile          | ./nowhere; 1 plain file was ignored
compare planted:nosuch {MODEL}                | unknown planted model 'nosuch'
compare match {MODEL} planted:nosuch          | unknown planted model 'nosuch'
compare quantised planted:nosuch              | unknown planted model 'nosuch'
compare quantised {MODEL} --method int5       | unknown way of quantising 'int5'
compare profiles {MODEL} planted:nosuch       | unknown planted model 'nosuch'
compare corpora planted:nosuch --set alter=packed | unknown planted model 'nosuch'
compare checkpoints planted:nosuch            | unknown planted model 'nosuch'
record planted:nosuch --file texts.txt -o x   | unknown planted model 'nosuch'
score {MODEL} -m inducton                     | unknown metric 'inducton'
score {MODEL} -m local_window:width=x         | width='x' is not a whole number
score {MODEL} -m local_window:widht=3         | option of local_window 'widht'
score {MODEL} -m nowhere.py                   | nowhere.py does not exist
score {MODEL} --null nosuch                   | '--null'
score {MODEL} --random 0                  | '--random'
score {MODEL} --engine x                      | '--engine'
score {MODEL} --by nosuch                     | '--by'
score {MODEL} --max-length 1                  | '--max-length'
score {MODEL} --source nosuch                 | '--source'
score {MODEL} --dtype float3                  | '--dtype'
score {MODEL} --device quantum                | device 'quantum' cannot be used
score {MODEL} --device cuda:x                 | device 'cuda:x' cannot be used
score {MODEL} --import nowhere.py             | --import nowhere.py: there is no such file
score {MODEL} --file nowhere.txt              | nowhere.txt is not a file
score {MODEL} --file bytes.txt                | bytes.txt is not UTF-8 text
score {MODEL} --file empty.txt                | empty.txt holds no text
score {MODEL} --image nowhere.png             | 'nowhere.png' does not exist
score {MODEL} --text a                        | --text needs --image or --audio
score {MODEL} --image afile --audio afile     | cannot be combined
score {MODEL} --image afile --max-length 9    | exclude --file and --max-length
score {MODEL} --config nowhere.toml           | --config: nowhere.toml cannot be read: No such file
score {MODEL} --config bad.toml               | bad.toml is not valid TOML
score {MODEL} -o afile                        | afile is a file, not a folder
score {MODEL} -o afile/below                  | afile is a file, not a folder
explore planted:nosuch                        | unknown planted model 'nosuch'
mcp {MODEL} planted:nosuch                    | unknown planted model 'nosuch'
mcp {MODEL} --set port=70000                  | '--set port'
mcp {MODEL} -o afile                          | afile is a file, not a folder
explore bundled:induction bundled:one-layer   | are 2 models; one is held in memory, so give one
atlas planted:nosuch                          | unknown planted model 'nosuch'
atlas {MODEL} -m inducton                     | unknown metric 'inducton'
atlas {MODEL} --set resume=afile                | afile is a file, not a folder
check planted:nosuch                          | unknown planted model 'nosuch'
check afile                                   | afile is not a folder
attribute tokens planted:nosuch --text 'a b'  | unknown planted model 'nosuch'
attribute tokens {MODEL}                      | give --text, or --file
texts anchors planted:nosuch                  | unknown planted model 'nosuch'
texts anchors {MODEL} --file nowhere.txt      | nowhere.txt is not a file
texts anchors {MODEL} --file empty.txt        | empty.txt holds no text
texts anchors {MODEL} --file texts.txt --method resampling | give it with --answer
texts graph planted:nosuch                    | unknown planted model 'nosuch'
texts graph {MODEL} --file nowhere.txt        | nowhere.txt is not a file
texts graph {MODEL} --text a --file texts.txt | not both
cache planted:nosuch                          | unknown planted model 'nosuch'
cache {MODEL} nowhere                         | nowhere
study pictures planted:nosuch -m sinks --image afile | unknown planted model 'nosuch'
study pictures {MODEL} -m nosuch              | '--method'
study pictures {MODEL} -m sinks               | give the pictures by --image
study pictures {MODEL} -m grounding --image afile | 0 --answer for 1 pictures
study pictures {MODEL} -m sinks --image afile --text a --text b | 2 --text for 1 files
texts order {MODEL} --file nowhere.jsonl      | nowhere.jsonl
evaluate harness planted:nosuch --task a.jsonl | unknown planted model 'nosuch'
evaluate harness {MODEL} --task a --random -1 | '--random'
study align {MODEL} --set policy=nosuch       | '--set policy'
texts sources planted:nosuch                  | unknown planted model 'nosuch'
texts sources {MODEL} --file texts.txt        | with --answer
texts sources {MODEL} --file nowhere.txt --answer x | nowhere.txt is not a file
texts sources {MODEL} --method nosuch         | 'nosuch'
steer planted:nosuch --heads L0H0             | unknown planted model 'nosuch'
steer {MODEL}                                 | --heads
steer {MODEL} --heads L0H0 --set factors=nan      | finite numbers
steer {MODEL} --heads L0H0 --set factors=x        | give numbers
steer {MODEL} --heads L0H0 --method nosuch    | '--method'
importance gates planted:nosuch               | unknown planted model 'nosuch'
importance gates {MODEL} --method nosuch      | '--method'
circuit trace planted:nosuch                  | unknown planted model 'nosuch'
circuit trace {MODEL} --file nowhere.jsonl    | nowhere.jsonl
circuit trace {MODEL} --file empty.txt        | empty.txt holds no text
circuit trace {MODEL} --site heads            | '--site'
circuit variables planted:nosuch              | unknown planted model 'nosuch'
circuit variables {MODEL} --file nowhere.jsonl | nowhere.jsonl
circuit variables {MODEL} --method turn       | '--method'
circuit variables {MODEL} --position x        | '--position'
prune verify nowhere                          | 'nowhere' does not exist
attribute lens {MODEL} --text a -o found      | ends in .json, .csv or .html
train probe planted:nosuch --file nowhere.jsonl | unknown planted model 'nosuch'
texts categories planted:nosuch --file nowhere.jsonl | unknown planted model 'nosuch'
importance ablate planted:nosuch              | unknown planted model 'nosuch'
importance ablate {MODEL} --kind nosuch       | '--kind'
importance ablate {MODEL} --kind mean-dataset | needs user-supplied prompts
importance ablate {MODEL} --task nosuch       | task 'nosuch' is not known
importance ablate {MODEL} --task nowhere.txt  | the task file nowhere.txt does not exist
importance ablate {MODEL} --task bytes.txt    | bytes.txt is not UTF-8 text
importance ablate {MODEL} --task bad.jsonl    | bad.jsonl line 1 is not valid JSON
importance ablate {MODEL} --measure accuracy  | the task repeats measures the loss
importance ablate {MODEL} --heads x           | 'x'
importance ablate {MODEL} -o afile            | afile is a file, not a folder
importance shapley ./nowhere                  | nowhere does not exist
importance bundled:nosuch                     | unknown bundled model 'nosuch'
importance {MODEL} -m nosuch                  | 'nosuch'
prune planted:nosuch                          | unknown planted model 'nosuch'
prune {MODEL} --keep 3                        | need --save DIR
prune {MODEL} --set repair=3                      | need --save DIR
prune {MODEL} --save new                      | --save needs one of
prune {MODEL} --keep 3 --save texts.txt       | texts.txt exists already
prune {MODEL} --keep 3 --set rounds=2 --save new  | --set rounds needs --keep and --set repair
prune {MODEL} --keep 0 --save new             | '--keep'
prune {MODEL} --heads x --save new            | 'x'
importance verify planted:nosuch -m induction | unknown planted model 'nosuch'
importance verify {MODEL} -m local_window:width=x | width='x' is not a whole number
circuit pairs planted:nosuch --file texts.txt | unknown planted model 'nosuch'
circuit pairs {MODEL} --file bad.toml         | bad.toml is not valid TOML
circuit pairs {MODEL} --file texts.txt -o x.doc | file format of pairs
circuit {MODEL} --task bad.toml               | bad.toml is not valid TOML
circuit planted:nosuch --task induction       | unknown planted model 'nosuch'
circuit {MODEL} --task nowhere.jsonl          | nowhere.jsonl cannot be read
circuit {MODEL} --task induction --method nosuch | 'nosuch'
circuit {MODEL} --task induction --set faithful=2 | 2.0 is not in the range 0<x<1
circuit {MODEL} --task induction --keep 0         | 0 is not in the range x>=1
circuit {MODEL} --task induction --set maps=pos    | 'pos' is not one of
circuit {MODEL} --task induction --against nosuch | 'nosuch'
circuit {MODEL} --task induction --load no.toml | no.toml cannot be read
circuit path planted:nosuch --task induction --route '0.0>1.0' | unknown planted model 'nosuch'
circuit path {MODEL} --task induction         | --route
circuit shares planted:nosuch --heads L0H0    | unknown planted model 'nosuch'
circuit loadings planted:nosuch --heads L0H0  | unknown planted model 'nosuch'
circuit graph planted:nosuch --text 'a b'     | unknown planted model 'nosuch'
train dictionary planted:nosuch --layer 0     | unknown planted model 'nosuch'
train dictionary {MODEL}                      | --layer
train dictionary {MODEL} --load nowhere       | nowhere
circuit shares {MODEL} --heads x              | 'x'
attribute planted:nosuch --text 'a b'         | unknown planted model 'nosuch'
attribute {MODEL} --text 'a b' -m nosuch      | 'nosuch'
attribute {MODEL}                             | give one --text, or --file
attribute {MODEL} --file bytes.txt            | bytes.txt is not UTF-8 text
attribute flow ./nowhere --text 'a b'         | nowhere does not exist
attribute flow {MODEL} --text 'a b' --position x | output 'x' is not a position
attribute flow {MODEL} --file empty.txt       | empty.txt holds no text
evaluate faithfulness planted:nosuch --file texts.txt | unknown planted model 'nosuch'
evaluate faithfulness {MODEL} --file nowhere.txt | nowhere.txt is not a file
attribute similarity planted:nosuch --text a --text b | unknown planted model 'nosuch'
attribute difference planted:nosuch --file texts.txt | unknown planted model 'nosuch'
attribute difference {MODEL} --file nowhere.txt | nowhere.txt is not a file
attribute lens planted:nosuch --text a        | unknown planted model 'nosuch'
attribute lens {MODEL}                        | give --text, or --tune FILE
attribute lens {MODEL} --tune nowhere.txt     | nowhere.txt is not a file
attribute head-weights planted:nosuch --file texts.txt | unknown planted model 'nosuch'
evaluate sanity planted:nosuch --file texts.txt | unknown planted model 'nosuch'
evaluate sanity {MODEL} --file texts.txt -m nosuch | 'nosuch'
evaluate plausibility planted:nosuch --file texts.txt | unknown planted model 'nosuch'
texts influence planted:nosuch --file texts.txt | unknown planted model 'nosuch'
texts influence {MODEL} --file bytes.txt -m induction | bytes.txt is not UTF-8 text
texts influence {MODEL} --file texts.txt      | name the heads with --heads
study safety planted:nosuch                   | unknown planted model 'nosuch'
study safety bundled:refusal --harmful texts.txt | must be given together
study safety bundled:refusal --set template=x     | --set template applies to
study safety bundled:refusal --harmful no --harmless no | no is not a file; --harmful expects
study align planted:nosuch                    | unknown planted model 'nosuch'
study align bundled:reorder --file bad.jsonl  | bad.jsonl, line 1: not JSON
study align bundled:reorder --set rows=x          | '--set rows'
study speech planted:nosuch                   | unknown planted model 'nosuch'
study speech bundled:reorder                  | give --file RECORDINGS.jsonl, or --audio with --text
study speech bundled:reorder --file bad.jsonl | bad.jsonl, line 1: not JSON
study speech bundled:reorder --audio afile    | 0 --text for 1 --audio
study trees planted:nosuch                    | unknown planted model 'nosuch'
study trees {MODEL} --file nowhere.conllu | nowhere.conllu is not a file
study vision planted:nosuch                   | unknown planted model 'nosuch'
study vision bundled:shapes --method nosuch   | unknown measure 'nosuch'
study vision bundled:shapes --image nowhere  | 'nowhere' does not exist
study vision bundled:shapes --set maps=rolout     | did you mean rollout
view planted:nosuch --text a                  | unknown planted model 'nosuch'
view {MODEL} --file nowhere.txt               | nowhere.txt is not a file
view {MODEL} --text a --heads x               | 'x'
view {MODEL} --text a --set show=nosuch       | '--set show'
judge planted:nosuch L0H0=induction           | unknown planted model 'nosuch'
head {MODEL} tea                              | cannot read 'tea' as a head
profile {MODEL} --max-length 1                | 1 is not in the range x>=2
list methods nosuch                           | 'nosuch'
list metrics nosuch                           | 'nosuch'
completion nosuch                             | 'nosuch'
"""
CASES = [tuple(map(str.strip, line.split(" | "))) for line in WRONG.strip().splitlines()]
COMMANDS = {
    path: [case for case in CASES if called(case[0].split())[0] is command]
    for path, command in leaves(main, "interp")
    if not path.startswith("interp results") and path != "interp list models"  # take no model
}


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
        [sys.executable, "-c", RUN],
        input=json.dumps([line for line, _ in CASES]),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    results = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("[")]
    assert [line for line, *_ in results] == [line for line, _ in CASES]
    wrong = [
        (line, code, torch, told)
        for (line, told, code, torch), (_, message) in zip(results, CASES, strict=True)
        if code not in (1, 2) or torch or message not in " ".join(told) or "Traceback" in str(told)
    ]
    assert wrong == []


def test_every_command_that_takes_a_model_or_a_name_is_in_the_table() -> None:
    assert not [path for path, cases in COMMANDS.items() if not cases]


def test_too_little_memory_for_one_row_is_told_before_the_run(
    errors, llama_folder, monkeypatch
) -> None:
    monkeypatch.setattr("interp.heads.estimate.free_memory", lambda device: 2000)
    monkeypatch.setattr("interp.heads.sweep.scored_models.score_each", None)  # nothing runs
    code, [told, _] = errors("score", llama_folder, "-m", "entropy", "--null", "none")
    assert code == 1
    assert "need at least" in told
    assert "2 KiB are free; score fewer metrics at a time, shorten the prompts" in told
