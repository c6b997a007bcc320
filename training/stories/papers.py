"""Letters, lists, instructions, sums, verses and messages, which the people write and say."""

from __future__ import annotations

from typing import Final

PAPERS: Final[dict[str, tuple[str, ...]]] = {
    "letter announced": (
        "On {day} ^{a} =wrote a letter to {b}:",
        "Some days later ^{b} =got a letter from {a}:",
        "That night ^{a} =sat down |and =wrote to {b}:",
        "^{a} =was away in {month}, |so ^{a.she} =sent {b} a letter:",
    ),
    "letter begins": (
        "^{I} =hope |^{you} =are well.",
        "Thank {you} for {your} last letter.",
        "^{I} =has/have been here for {few} weeks now.",
        "Here ^[it] =has been {weather} since {day}.",
        "^[It] =has been a long time |since ^{I} =wrote to {you}.",
        "How ~are ^{you}, and how ~is {your} ^{relative}?",
    ),
    "letter of a thing": (
        "^{t} =is/are here with {me}, |and ^{I} =look at {t.her} every day.",
        "^{I} still =has/have {t}.",
        "^{I} =keep {t} safe |and =think of {you}.",
        "Yesterday a ^{trade} =asked {me} about {t}, |but ^{I} =will not sell {t.her}.",
        "Do not worry about {t}: |^{I} =take good care of {t.her}.",
    ),
    "letter news": (
        "{my} ^{relative} =is ill, |but the ^[doctor] =says |^[it] =is nothing bad.",
        "Every {time} ^{I} =go to {q} |and =feed {n}.",
        "^{n} near {m} =is/are {looks}, |and the ^+[children] =like to look at {n.her}.",
        "^{I} =has/have learned to bake bread.",
        "On {day} ^{we} all =went to {q}, |and a ^{trade} =sang for {us}.",
        "^{I} =has/have read {few} books this month.",
        "The ^+[days] =are long |and the ^+[evenings] =are {weather}.",
        "Last week ^{I} =fell off a horse, |but ^{I} =was not hurt.",
    ),
    "letter ends": (
        "Please write soon.",
        "^{I} =will be back in {month}.",
        "~Will ^{you} visit {me} on {day}?",
        "^{I} =miss {you}.",
        "Give {my} love to everyone.",
        "^{we} =will see each other at the fair.",
    ),
    "greeting": ("Dear {b},", "{my} dear {b},", "Hello {b},"),
    "signature": ("{your} friend,", "With love,", "{your} old friend,", "Best wishes,"),
    "answers letter": (
        "^{b} =read the letter {few} times.",
        "When ^{b} =had read the letter, |^{b.she} =laughed.",
        "The same day ^{b} =wrote back to {a}.",
        "^{b} =kept the letter in a drawer.",
    ),
    "shopping list": (
        "^{a} =wrote a shopping list:",
        "Before ^{a} =went to the shop, |^{a.she} =made a list:",
        "<b a:What ~do ^{we} need?> ~asked ^{b}, |and ^{a} =made a list:",
    ),
    "luggage list": (
        "^{a} =was going on a trip to {q} |and =packed:",
        "For the night in a tent, ^{a} =took along:",
        "^{a} =made a list for the journey:",
    ),
    "chore list": (
        "^{a} =had a lot to do on {day}:",
        "On the wall ^{a} =had pinned a list of work for {day}:",
        "^{b} =had left a list of work for {a}:",
    ),
    "of the list": (
        "The first ^[line] of the list =was: {first!first}.",
        "^[What] =came last on the list? {last!last}.",
        "<b a:Do not forget |^[what] =comes first!> ~said ^{b}. <a b:{first!first},> ~said ^{a}.",
        "^{a} =read out the last line again: {last!last}.",
        "Above all, ^{a} =thought of the first line: {first!first}.",
        "^{b} =looked at the end of the list |and =read: {last!last}.",
    ),
    "recipe announced": (
        "^{a} =showed {b} how to {task}:",
        "<b a:How ~do ^{you} {task}?> ~asked ^{b}. ^{a} =wrote down the answer:",
        "In an old book ^{ab} =read how to {task}:",
        "^[This] =is how ^{a} would {task}:",
    ),
    "step asked": (
        "<b a:^[What] =comes first?> ~asked ^{b}. <a b:{first!copy},> ~answered ^{a}.",
        "<b a:^[What] =is the last step?> ~asked ^{b}. <a b:{last!copy},> ~said ^{a}.",
        "^{b} =had forgotten the last step. <a b:{last!copy},> ~said ^{a}.",
        "<a b:Now tell {me} |how to begin,> ~said ^{a}. <b a:{first!copy},> ~said ^{b}.",
        "^{b} =read the first line aloud: <b a:{first!copy}.>",
        "^{b} =looked at the last line again: <b a:{last!copy}.>",
    ),
    "addition": (
        "^{a} =had {x} {counted}. ^{b} =gave {a.her} {y} more. "
        "Now ^{a} =had {total!sum} {counted}.",
        "^{a} =had {x} {counted}, |and ^{b} =had {y}. Together ^{ab} =had {total!sum} {counted}.",
        "There ~were {x} ^{counted} in a bowl. ^{a} =put in {y} more, "
        "|so ^[there] =were {total!sum} in the bowl.",
        "^{a} =found {x} {counted}, |and then {y} more. ^[That] =made {total!sum} {counted}.",
        "<b a:If ^{you} =have {x} {counted} |and =get {y} more, how many ~do ^{you} have?> "
        "~asked ^{b}. <a b:{total!sum},> ~said ^{a}.",
        "On {day} ^{a} =counted {x} {counted}, |and the day after {y}. "
        "In all ^[that] =was {total!sum}.",
    ),
    "subtraction": (
        "^{a} =had {x} {counted} |and =gave {y} to {b}. ^{a} still =had {total!sum} {counted}.",
        "There ~were {x} ^{counted} on a plate. ^{b} =took {y}, "
        "|so ^[there] =were {total!sum} left.",
        "^{a} =had {x} {counted}, |but ^{a.she} =lost {y}. ^[That] =left {total!sum}.",
        "<b a:What ~is ^{x} minus {y}?> ~asked ^{b}. <a b:{total!sum},> ~said ^{a}.",
        "Of {x} {counted}, ^{ab} =used {y}. After that ^[there] =were {total!sum}.",
    ),
    "exercise": (
        "{x} + {y} = {total!sum}.",
        "{x} plus {y} is {total!sum}.",
        "What is {x} + {y}? {total!sum}.",
    ),
    "exercise less": (
        "{x} - {y} = {total!sum}.",
        "{x} minus {y} is {total!sum}.",
        "What is {x} - {y}? {total!sum}.",
    ),
    "exercises announced": (
        "^{a} =did sums at school:",
        "In {a's} notebook stood:",
        "The ^[teacher] =wrote on the board for {a}:",
        "^{a} =practised sums with {b}:",
    ),
    "note found": (
        "On the wall ^{a} =read a verse: <a b:{passage}.>",
        "^{a} =found an old note |^[that] =said: <a b:{passage}.>",
        "^{a} =knew a verse by heart: <a b:{passage}.>",
        "^{b} =asked for a verse, |and ^{a} =said: <a b:{passage}.>",
        "<a b:{passage},> ~sang ^{a}, |and ^{b} =listened.",
    ),
    "note again": (
        "Before going to bed, ^{b} =said the verse again: <b a:{passage!copy}.>",
        "^{b} =had learned the verse by heart: <b a:{passage!copy}.>",
        "All day long ^{b} =sang to {b.self}: <b a:{passage!copy}.>",
        "<b a:{passage!copy},> ~repeated ^{b} {glad}.",
        "That evening ^{a} =wrote down the verse once more: <a b:{passage!copy}.>",
    ),
    "verse": (
        "the {v1} {w1} {in1} the {e1}, and the {j2} {v2} {w2} {in2} the {e2}",
        "the {j1} {v1} that {w1} {in1} the {e1} {w2} {in2} the {e2}",
        "when the {v1} {w1} {in1} the {e1}, the {j1} {v2} {w2} {in2} the {e2}",
        "no {v1} {w1} {in1} the {e1}, but the {v2} {w2} {in2} the {e2}",
        "the {j1} {v1} {w1} {in1} the {e1}, the {j2} {v2} {w2} {in2} the {e2}",
        "hear the {v1} {in1} the {e1}, hear the {v2} {in2} the {e2}",
    ),
    "message": (
        "<a b:Please tell {c}: {passage}!> ~said ^{a}.",
        "^{a} =gave {b} a message for {c}: <a b:{passage}!>",
        "<a b:Go to {c} |and say: {passage}!> ^{a} =told {b}.",
    ),
    "message given": (
        "^{b} =went to {c} |and =said: <b c:{passage!copy}!>",
        "As soon as ^{b} =met {c}, |^{b.she} =told {c.her}: <b c:{passage!copy}!>",
        "Soon ^{c} =heard the message from {b}: <b c:{passage!copy}!>",
    ),
    "words of a message": (
        "the {colour} {furniture} by the {object} must be moved before {day}",
        "bring {few} {counted} to the {trade} {in q} at {number}",
        "there will be {snack} and {snack2} for everyone on {day} {time}",
        "the {animals} have run away to {q}, so shut the gate",
        "the {trade} is coming at {number}, not at {number2}",
        "put the {snack} in the {furniture} and lock the door",
        "nobody may use the {object} {in q} until {month}",
        "meet the {trade} by the {object} on {day} at {number}",
        "{few} {coat} {animals} are sitting on the roof of the {trade}",
        "the key to {q} lies under a flat stone",
    ),
}

# Instructions: what is done, and the steps in their order.
RECIPES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "make pancakes",
        (
            "mix {few} eggs with flour and milk",
            "add a little salt",
            "heat some {fat} in a pan",
            "bake the pancakes on both sides",
            "eat the pancakes with {snack}",
        ),
    ),
    (
        "make {colour} paper boats",
        (
            "take a sheet of {colour} paper",
            "fold the paper in half",
            "fold down {few2} corners",
            "pull the sides apart",
            "put the boat on the water",
        ),
    ),
    (
        "wash a {coat} {pet}",
        (
            "fill a tub with warm water",
            "hold the {pet} firmly",
            "rub the fur with soap for {few} minutes",
            "rinse off the soap with {few2} buckets of water",
            "dry the {pet} with a towel",
        ),
    ),
    (
        "plant a {plant}",
        (
            "dig a hole {few} inches deep",
            "put the {plant} in the hole",
            "fill the hole with earth",
            "water the {plant} every {time}",
            "wait until {month}",
        ),
    ),
    (
        "reach {q}",
        (
            "leave the house by the back door",
            "turn left at the {object}",
            "walk {few} hundred steps",
            "cross the bridge by the {object2}",
            "knock {few2} times",
        ),
    ),
    (
        "cook {colour} soup",
        (
            "cut up {few} {vegetable}",
            "boil the {vegetable} in a large pot",
            "stir in some {fat}",
            "let the soup simmer for {few2} minutes",
            "serve the soup with {snack}",
        ),
    ),
    (
        "send a parcel to {q}",
        (
            "wrap the box in {colour} paper",
            "tie up the box with string",
            "write the address on top",
            "stick on {few} stamps",
            "take the parcel to the post office before {day}",
        ),
    ),
    (
        "play the {animal} game",
        (
            "sit in a circle",
            "put {few} {counted} in the middle",
            "cover both eyes and count to {number}",
            "guess who is missing",
            "start again after {few2} rounds",
        ),
    ),
    (
        "build a new {object}",
        (
            "draw a plan",
            "buy {few} boards and some nails",
            "saw the boards to the same length",
            "nail the boards together",
            "paint the wood {colour} and wait until {day}",
        ),
    ),
    (
        "make a fire",
        (
            "gather dry wood and {few} stones",
            "lay the stones in a ring",
            "pile the wood in the middle",
            "light a match",
            "sit down and sing {few2} songs",
        ),
    ),
    (
        "make tea for {few} people",
        (
            "boil a kettle of water",
            "warm the pot",
            "put in {few} spoons of tea",
            "wait for {few2} minutes",
            "pour the tea and offer {snack}",
        ),
    ),
    (
        "care for {pets}",
        (
            "clean the stable every {day}",
            "give the {pets} {few} buckets of water",
            "feed the {pets} at {number}",
            "brush the {pets} for {few2} minutes",
            "close the gate at night",
        ),
    ),
)
