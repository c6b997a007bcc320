"""The vocabulary of the generated text: everyday words, written for this project."""

from __future__ import annotations


def _words(text: str) -> list[str]:
    return text.split()


def _pairs(text: str) -> dict[str, str]:
    return {one: other for one, _, other in (pair.partition("/") for pair in text.split())}


WOMEN = _words(
    """Anna Clara Dora Elsa Greta Hanna Ida Julia Karin Lena Maria Nora Olga Petra Rosa Sofia
    Tina Vera Wilma Yara"""
)
MEN = _words(
    """Adam Bruno Carl David Emil Felix George Hugo Ivan Jacob Leo Martin Noah Oscar Paul Robert
    Simon Tom Victor Walter"""
)
# Names with the pronouns that stand for them: subject, possessive.
NAMES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(WOMEN, ("she", "her")),
    **dict.fromkeys(MEN, ("he", "his")),
}

CITIES = _words(
    """Bremen Cairo Dublin Geneva Hanoi Lima Lisbon London Madrid Oslo Paris Prague Quito Rome
    Vienna"""
)
PLACES = _words(
    """market garden station library harbour school museum kitchen office bakery river forest
    bridge castle field"""
)
CONTAINERS = _words("basket box drawer bag cupboard bucket trunk crate")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _words(
    """January February March April May June July August September October November
    December"""
)
WEATHER = _words("sunny rainy windy cloudy cold warm foggy snowy")
COLOURS = _words("red blue green yellow white black brown grey")
ADJECTIVES = _words(
    """old new small large heavy clean broken round strange lovely useful cheap plain bright
    ugly"""
)
FELT = _words("happy tired hungry proud surprised worried angry calm")
NUMBERS = _words("two three four five six seven eight nine ten twelve")
GAVE = _words("gave sold showed brought handed")

# Things that are carried, given and counted: singular/plural.
THINGS = _pairs(
    """apple/apples book/books lamp/lamps letter/letters map/maps coin/coins key/keys ring/rings
    shoe/shoes cup/cups plate/plates hat/hats clock/clocks rope/ropes stone/stones
    flower/flowers pencil/pencils bottle/bottles candle/candles egg/eggs orange/oranges
    umbrella/umbrellas knife/knives brush/brushes loaf/loaves toy/toys"""
)
# Beings that act: singular/plural.
BEINGS = _pairs(
    """dog/dogs cat/cats horse/horses bird/birds child/children farmer/farmers teacher/teachers
    sailor/sailors baker/bakers doctor/doctors neighbour/neighbours mouse/mice goose/geese
    cow/cows"""
)
# What one being does, what many do.
ACTIONS = _pairs(
    """sleeps/sleep waits/wait sings/sing works/work runs/run rests/rest walks/walk
    laughs/laugh listens/listen plays/play"""
)
