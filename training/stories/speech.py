"""Conversations: a line and what may answer it, and the tags that say who speaks."""

from __future__ import annotations

from typing import Final

# Tags after a line, by the mark that ends it; `a` speaks to `b`.
TAGS: Final[dict[str, tuple[str, ...]]] = {
    "tag of a statement": (
        "~said ^{a}.",
        "~said ^{a} {glad}.",
        "^{a} =told {b}.",
        "^{a} =said to {b}.",
        "^{a} =explained.",
        "~remarked ^{a}.",
        "~said ^{a} after a moment.",
        "~said ^{a} with a smile.",
    ),
    "tag of a question": (
        "~asked ^{a}.",
        "^{a} =asked {b}.",
        "~asked ^{a} {glad}.",
        "^{a} =wanted to know.",
        "~asked ^{a}, |and =looked at {b}.",
    ),
    "tag of a cry": (
        "~cried ^{a}.",
        "~called ^{a}.",
        "^{a} =shouted to {b}.",
        "~cried ^{a}, |and =laughed.",
    ),
}

# Each line with the lines that may answer it.
TALK: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "~Are ^{you} hungry?",
        (
            "Yes, ^{I} =has/have eaten nothing since {time}.",
            "No, ^{I} =has/have just had some {snack}.",
            "A little. ~Is ^[there] any {snack} left?",
        ),
    ),
    (
        "Where ~did ^{you} go on {day}?",
        (
            "^{I} =was at home all day.",
            "^{I} =went to {q} with {my} sister.",
            "To {q}. ^{I} =has/have to go there every week.",
        ),
    ),
    (
        "~Do ^{you} like {bare n}?",
        (
            "Yes, |but ^{I} =like {bare m} better.",
            "No, ^{I} =is/are/am a little afraid of {n.her}.",
            "Very much. {my} ^[uncle] =has {few} of {n.her}.",
        ),
    ),
    (
        "How ~is {your} ^{relative}?",
        (
            "Much better, thank {you}.",
            "Still very tired, ^{I} =is/are/am afraid.",
            "Busy as always. {my} ^[shop] =needs help.",
        ),
    ),
    (
        "^{I} =heard a strange noise last night.",
        (
            "^[That] =was only the {animal}.",
            "So did ^{I}. The ^[noise] =came from {q}.",
            "^{you} =were dreaming.",
        ),
    ),
    (
        "What ~do ^{you} want to be one day?",
        (
            "^{I} =want to be a {trade}.",
            "A {trade}, like {my} {relative}.",
            "^{I} =do not know yet.",
        ),
    ),
    (
        "~Can ^{you} keep a secret?",
        (
            "Of course ^{I} =can.",
            "^[That] =depends on the secret.",
            "No, |so do not tell {me}.",
        ),
    ),
    (
        "How many {bare counted} ~do ^{you} have?",
        (
            "^{I} =has/have {few}.",
            "^{I} =had {few}, |but ^{I} =lost {counted.her} all.",
            "More than {few}.",
        ),
    ),
    (
        "^[It] =will be {weather} tomorrow.",
        (
            "Then ^{we} =can stay at home.",
            "How ~do ^{you} know that?",
            "^{I} =do not mind {weather} days.",
        ),
    ),
    (
        "^{I} =has/have never been to {q}.",
        (
            "^{you} =should go there in {month}.",
            "Then let {us} go on {day}!",
            "Neither have ^{I}.",
        ),
    ),
    (
        "What ~did ^{you} dream about?",
        (
            "About a {coat} {animal} |^[that] =could speak.",
            "^{I} =dreamed |that ^{I} =was a {trade}.",
            "Nothing at all.",
        ),
    ),
    (
        "Please help {me} with {furniture}!",
        (
            "Where ~do ^{you} want to put {furniture.her}?",
            "^{I} =is/are/am coming!",
            "In a minute. ^{I} =has/have to finish {my} work.",
        ),
    ),
    (
        "~Did ^{you} lock {door}?",
        (
            "Yes, ^{I} =locked {door.her} twice.",
            "^{I} =forgot. Go back and see!",
            "^{I} =thought |^{you} =had the key.",
        ),
    ),
    (
        "Which colour ~do ^{you} like best?",
        (
            "^{I} =like {colour} best.",
            "{colour}, and {colour2} as well.",
            "Once ^[it] =was {colour}.",
        ),
    ),
    (
        "Why ~are ^{you} so {mood}?",
        (
            "Because ^[it] =is {day}.",
            "^{I} =is/are/am always {mood} in {month}.",
            "~Am ^{I}? ^{I} =had not noticed.",
        ),
    ),
    (
        "~Shall ^{we} meet at {number} on {day}?",
        (
            "At {number2} would be better.",
            "Yes, at {number}, as always.",
            "^{I} =cannot come on a {day}.",
        ),
    ),
    (
        "Good morning! What a {weather} day!",
        (
            "Good morning! Come in |and sit down.",
            "Yes, just like last {month}.",
            "A {weather2} ^[day] =would please {me} more.",
        ),
    ),
    (
        "~Have ^{you} read {letter} from the {trade}?",
        (
            "Twice. ^{letter.she} =made {me} laugh.",
            "^{I} =did not know |^[there] =was one.",
            "Not yet. ^{I} =will read {letter.her} this {time}.",
        ),
    ),
    (
        "This ^{bare s} =is the best in town.",
        (
            "~Did ^{you} make {s.her} alone?",
            "~May ^{I} have some more?",
            "{my} ^{relative} =will be glad to hear that.",
        ),
    ),
    (
        "^{I} =is/are/am going to bed.",
        (
            "Good night! Sleep well.",
            "But ^[it] =is only {number}!",
            "~Have ^{you} brushed {your} teeth?",
        ),
    ),
    (
        "^{n} =was/were in the garden again.",
        (
            "~Did ^{n.she} eat the flowers?",
            "^{I} =will build a fence.",
            "^{I} =saw {n.her}, all {few}.",
        ),
    ),
    (
        "~Have ^{you} ever met a {trade}?",
        (
            "Only once, {in q}.",
            "{my} ^{relative} =is one.",
            "^{I} =know {few} of those.",
        ),
    ),
    (
        "How far ~is ^[it] to {q}?",
        (
            "Not far. ^{you} =can be there in {number} minutes.",
            "^{I} =do not know. Ask the {trade}.",
            "About {number} miles.",
        ),
    ),
    (
        "^{we} =has/have no more {bare s}.",
        (
            "Then ^{I} =will go to the shop.",
            "^[Who] =ate {s.her} all?",
            "Let {us} have {snack} instead.",
        ),
    ),
    (
        "Who ~did ^{you} invite to the party?",
        (
            "All {my} ^+[neighbours] =are coming.",
            "{my} ^{relative} and a {trade}.",
            "^[Nobody] =has answered so far.",
        ),
    ),
    (
        "^{I} =is/are/am learning to ride a bicycle.",
        (
            "^[That] =is harder than |^[it] =looks.",
            "Be careful on the bridge!",
            "^[Who] =teaches {you}?",
        ),
    ),
    (
        "~Is ^[there] any news from {your} {relative}?",
        (
            "{my} ^{relative} =has become a {trade}.",
            "Only a short telegram from {month}.",
            "None since last {month}, |and ^{I} =worry a lot.",
        ),
    ),
    (
        "~Could ^{you} lend {me} {few} coins until {day}?",
        (
            "^{I} =has/have only {few2}.",
            "Certainly, |but please pay {me} back.",
            "^{I} =gave {you} {few} last week!",
        ),
    ),
    (
        "^{roof} =leaks again.",
        (
            "Put a bowl under the hole.",
            "A ^{trade} =promised to repair {roof.her}.",
            "After this storm ^[nobody] =is surprised.",
        ),
    ),
    (
        "Tell {me} something about {q}.",
        (
            "^[It] =is quiet there |and full of {bare n}.",
            "A famous ^{trade} =was born there.",
            "People say |^{n} =is/are larger there.",
        ),
    ),
    (
        "^{I} =know {a riddle} about a {animal}.",
        (
            "Go on, tell {me}!",
            "^{you} =told {riddle.her} last {day}.",
            "~Is ^{riddle.she} a hard one?",
        ),
    ),
)
