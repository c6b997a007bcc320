"""Words of the world: people, things, places, animals, food and what verses are made of."""

from __future__ import annotations

from typing import Final


def _words(text: str) -> list[str]:
    return text.split()


def _phrases(text: str) -> list[str]:
    return [" ".join(phrase.split()) for phrase in text.split(";")]


WOMEN: Final = _words("""
    Alice Anna Bella Clara Dora Ella Emma Flora Grace Hanna Ida Ivy Jane Julia Karin Kate Lena Lily
    Lucy Luisa Maria Martha Miriam Mina Nora Olga Paula Rosa Ruth Sara Sofia Tina Vera
""")
MEN: Final = _words("""
    Adam Albert Anton Ben Bruno Carl Daniel David Emil Felix Finn Frank George Henry Hugo Ivan Jack
    Jacob James John Leo Martin Max Noah Oscar Paul Peter Robert Sam Simon Tom Victor
""")

COLOURS: Final = _words("red blue green yellow white black brown grey purple orange pink golden")

# Kinds of things that somebody has: what they are like, then their names.
THINGS: Final[dict[str, tuple[str, str]]] = {
    "toys": (
        "wooden little old new bright",
        "ball kite drum doll puzzle whistle puppet boat train balloon spade",
    ),
    "tools": (
        "heavy rusty old new strong",
        "hammer rope ladder lantern saw bucket broom shovel wheel net axe rake",
    ),
    "dishes": (
        "clean little pretty old broken",
        "cup plate bowl spoon kettle jug teapot glass tray",
    ),
    "food": ("fresh sweet small ripe round", "apple pear lemon melon pumpkin plum peach cake pie"),
    "clothes": (
        "warm woollen new old thick",
        "hat coat scarf cap apron jacket shirt blanket cloak",
    ),
    "pairs": ("warm woollen new old thick", "gloves boots socks mittens slippers shoes"),
    "papers": (
        "thin old new torn lovely",
        "book map postcard ticket notebook picture poster newspaper diary",
    ),
    "small": (
        "tiny shiny old smooth lucky",
        """
            key coin shell stone feather button candle mirror bell ring comb brush pencil bead
            thimble necklace bracelet medal
        """,
    ),
    "music": ("old silver fine strange", "flute violin trumpet guitar horn harp clarinet banjo"),
    "bags": ("large leather old new empty", "bag suitcase umbrella purse basket sack"),
}
COLOURED: Final = frozenset({"toys", "dishes", "clothes", "pairs", "papers", "bags"})
LARGE: Final = frozenset({"tools", "music", "bags"})
PAIRS: Final = frozenset(_words(THINGS["pairs"][1]))

# Places, by the word that stands before them when somebody is there.
PLACES: Final[dict[str, str]] = {
    "in": """
        garden stable library school museum forest park barn church hospital village theatre
        vineyard greenhouse bathhouse courtyard tunnel orchard workshop office castle gallery
        laboratory meadow
    """,
    "at": """
        market station harbour bakery mill farm shop fair lighthouse zoo airport campsite circus
        playground
    """,
    "by": "river lake pond sea bridge fountain gate waterfall monument canal",
}

# Where a thing can be put: the word before, and what it is put in, on, under or behind.
SPOTS: Final[dict[str, str]] = {
    "in": "box drawer cupboard chest bin crate wardrobe",
    "on": "shelf table windowsill chair stove",
    "under": "bed bench sofa stairs carpet",
    "behind": "clock curtain door cushion piano bookcase",
}

DAYS: Final = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS: Final = _words("""
    January February March April May June July August September October November December
""")
TIMES: Final = _words("morning afternoon evening")
WEATHER: Final = _words("sunny rainy windy cloudy cold warm foggy snowy quiet mild stormy bright")
MOODS: Final = _words("""
    happy tired hungry proud sad worried angry calm cheerful lonely nervous thirsty sleepy curious
    bored cold
""")
GLAD: Final = _words("happily softly kindly quickly cheerfully warmly politely")
TRADES: Final = _words("""
    baker farmer teacher doctor sailor painter gardener driver singer miller weaver potter hunter
    butcher carpenter librarian nurse pilot soldier tailor waiter
""")

# Animals, singular and plural.
ANIMALS: Final[dict[str, str]] = {
    "dog": "dogs",
    "cat": "cats",
    "horse": "horses",
    "goat": "goats",
    "duck": "ducks",
    "cow": "cows",
    "hen": "hens",
    "rabbit": "rabbits",
    "pigeon": "pigeons",
    "donkey": "donkeys",
    "pig": "pigs",
    "swan": "swans",
    "mouse": "mice",
    "goose": "geese",
    "squirrel": "squirrels",
    "frog": "frogs",
    "hedgehog": "hedgehogs",
    "sparrow": "sparrows",
    "crow": "crows",
    "fox": "foxes",
}
PETS: Final = _words("dog cat horse goat pig donkey rabbit")
# What stands about, singular and plural.
OBJECTS: Final[dict[str, str]] = {
    "bench": "benches",
    "barrel": "barrels",
    "cart": "carts",
    "lamp": "lamps",
    "statue": "statues",
    "window": "windows",
    "chimney": "chimneys",
    "tower": "towers",
    "tent": "tents",
    "sign": "signs",
    "flag": "flags",
    "fence": "fences",
    "hut": "huts",
    "wagon": "wagons",
    "shed": "sheds",
    "roof": "roofs",
    "stool": "stools",
    "vase": "vases",
    "pillar": "pillars",
    "step": "steps",
}
LOOKS: Final = _words("old small tall white strange grey narrow pretty wet dusty crooked lovely")
COATS: Final = _words("brown small black young white big grey thin friendly shy")

# Counted things, which are never the thing of a story.
COUNTED: Final = _words("""
    marbles acorns nuts cherries stamps berries tulips daisies eggs pebbles chestnuts beans grapes
    crayons ribbons roses pins nails leaves cards sweets stickers
""")
NUMBERS: Final = _words("""
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty
""")

FOOD: Final = _phrases("""
    milk;butter;flour;sugar;salt;pepper;rice;honey;bread;cheese;tea;coffee;soup;jam;oil;vinegar;
    a bag of oats;a jar of mustard;a dozen eggs;a pound of peas;a bunch of radishes;cabbage;
    spinach;a bottle of juice;potatoes;tomatoes;mushrooms;raisins;almonds;garlic;noodles;lentils;
    asparagus;celery;cucumbers;a bar of chocolate;marmalade;a slice of bacon;walnuts;maple syrup;
    a piece of ham;a little ginger;cinnamon;yeast;cream;parsley;a box of dates;figs
""")
LUGGAGE: Final = _phrases("""
    a torch;a pillow;a toothbrush;soap;a towel;a compass;a raincoat;matches;string;a whistle;
    warm stockings;a camera;a knife and fork;a thermos;two jumpers;a sleeping bag;bandages;sandals;
    a deck of cards;a tin of biscuits;a swimsuit;sunglasses;a needle and thread;a hairbrush;
    earplugs;a hammock;a ukulele;binoculars;a paddle;a bicycle pump;spare laces;a magnifying glass;
    sun cream;an alarm clock;batteries;a water bottle;a pair of trousers;a penknife;writing paper
""")
CHORES: Final = _phrases("""
    sweep the floor;feed the hens;wash the windows;water the plants;fold the sheets;
    post the parcel;mend the fence;polish the silver;dust the shelves;collect the eggs;
    chop the wood;bake the bread;rake the leaves;iron the shirts;peel the potatoes;empty the bins;
    brush the pony;pick the plums;oil the hinges;clear the gutters;shake out the rugs;
    scrub the bath;trim the hedge;stack the logs;fill the lamps;darn the stockings;paint the gate;
    sharpen the knives;repair the tap;visit the dentist;pay the milkman;air the beds
""")

# What verses are made of; each rhyme is a pair of line ends.
RHYMES: Final = _words("""
    light/night hill/mill sea/tree bee/knee rain/lane snow/crow moon/noon stream/dream stone/throne
    rose/nose door/shore bell/well house/mouse wing/spring wood/hood sand/land sail/tale flame/name
    grain/plain tower/hour shade/glade crown/town wave/cave ring/king lake/snake vine/pine
    beach/peach fort/port fair/bear
""")
VERSE_NOUNS: Final = _words("""
    river shadow lantern harvest valley thunder winter summer autumn meadow raven lily willow
    morning evening silence whisper candle feather mountain island blossom ocean thistle shepherd
    sunrise sunset twilight midnight canyon glacier desert jungle comet planet galaxy anchor
    harness carriage chariot dragon giant wizard queen prince princess knight beggar hermit pirate
    jester minstrel poet nightingale falcon eagle seagull dolphin salmon beetle cricket butterfly
    firefly ladybird traveller fiddler dancer robin owl swallow wanderer piper kitten lark breeze
    frost dew ember spark ivy clover heather brook heron
""")
VERSE_VERBS: Final = _words("""
    sings waits sleeps turns calls wakes hides dances rests drifts shines falls rises wanders
    glitters whistles murmurs shivers flickers wavers blossoms ripens crumbles echoes listens hums
    trembles lingers vanishes returns gleams sighs
""")
VERSE_ADJECTIVES: Final = _words("""
    silent gentle golden ancient lonely merry distant hollow humble restless silver tender weary
    wild mighty noble cunning foolish honest faithful brave timid grumpy jolly clumsy graceful
    hidden forgotten enchanted marble velvet copper misty frosty thorny mossy pale bright slender
    patient secret frozen crimson drowsy
""")
NEAR: Final = _words("by near over under behind beyond above below")

RELATIVES: Final = _words("mother father sister brother aunt uncle cousin grandmother grandfather")
VEGETABLES: Final = _words("carrots onions leeks turnips beets beans mushrooms tomatoes")
FATS: Final = _words("butter oil")
PLANTS: Final = _words("tulip rose bean sunflower cherry lily fern daisy")
SNACKS: Final = [
    food for food in FOOD if " " not in food and food not in {"oil", "vinegar", "yeast"}
]
FURNITURE: Final = _words("box cupboard chest table bench sofa piano crate stove carpet")
