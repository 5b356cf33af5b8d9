# SPDX-License-Identifier: Apache-2.0
"""Strings for comparing tokenizers: text of many scripts, code, spaces, emoji, marks, control characters,
names of special tokens, and random characters. The same seed gives the same strings.
"""
import random
import unicodedata

PROSE = (
    "The quick brown fox doesn't jump over 1,234.56 lazy dogs; it's 3 o'clock, we'll see -- \"won't we?\" (I'VE been told so.)",
    "Größere Straßen führen über süße Äpfel, 25 % der Fälle; naïve façade, Ærøskøbing, Łódź, İstanbul'da ığdır.",
    "L'été, l'œuvre d'art coûte 12 € aujourd'hui, n'est-ce pas ? « Oui », dit-il.",
    "Быстрая коричневая лиса прыгает через 12 ленивых собак. Ещё ёлка, Київ, ѝ.",
    "Η γρήγορη αλεπού πηδά πάνω από τον σκύλο· ΟΔΥΣΣΕΥΣ, ἀρχὴ ἥμισυ παντός.",
    "敏捷的棕色狐狸跳过了懒狗。《红楼梦》第120回，價格：１２３元！",
    "素早い茶色の狐がのろまな犬を飛び越える。ｶﾀｶﾅ、ヴァイオリン、が゙ 2024年。",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다. 한글 각힣 12개",
    "الثعلب البني السريع يقفز فوق الكلب الكسول ١٢٣، مُحَمَّد، لا إله",
    "השועל החום המהיר קופץ מעל הכלב העצלן, שָׁלוֹם \"עולם\" ׳",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। क्षत्रिय १२३",
    "দ্রুত বাদামী শিয়াল অলস কুকুরের উপর লাফ দেয়। বাংলা ৪৫",
    "வேகமான பழுப்பு நரி சோம்பேறி நாய் மீது தாவுகிறது. தமிழ் ௧௨",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ ๑๒๓ น้ำ ำ",
    "မြန်မာဘာသာ ခွေးပျင်း ၁၂၃ ក្រុងភ្នំពេញ ១២ ພາສາລາວ ໑໒",
    "ქართული ენა, ՀԱՅԵՐԵՆ լեզու և, አማርኛ ፊደል ፩፪, ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ, ᠮᠣᠩᠭᠣᠯ",
    "Tiếng Việt có dấu: Nguyễn Văn Ậ, ế ề ể ễ ệ; đường phố Hà Nội.",
)
CODE = (
    "def f(x):\n\treturn {k: v for k, v in x.items() if k != '__init__'}  # comment\n\n\n",
    "int main(void) {\r\n    for (size_t i = 0; i < n; ++i) a[i] += 0x1F << 3;\r\n    return !ok && p->q;\r\n}\r\n",
    "SELECT * FROM \"t\" WHERE a >= 1e-5 AND b LIKE '%x_%';",
    "<div class=\"a-b\">&nbsp;&#x27;</div><!-- -->\n{\"key\": [1, -2.5, null, true]}",
    "$\\frac{\\partial L}{\\partial w} \\approx 3.14159$ ~~~ ``` @@ -1,3 +1,4 @@",
    "https://example.org/a/b?c=d&e=%20f#g user@example.com C:\\Users\\x ../y.tar.gz",
    "I'LL 'S 'd''re 'Ve it\u2019s \u017f'\u017f \u212aelvin camelCaseHTTPServer snake_case_9 ABCdef",
)
SPACES = (" ", "  ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\u00a0", "\u3000", "\u2003", "\u200b", "\u2028",
          "\u2029", "\u0085", "\u000b", "\u000c", "\u1680", "\u202f", "\u205f", "\ufeff", "\u180e", "\u001c", "\u2581", "\u2581\u2581")
EMOJI = ("\U0001f600", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f", "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3",
         "\u2122", "\u00a9\ufe0f", "\U0001fae8", "\U0001fabf")
MARKS = ("e\u0301", "a\u0323\u0302", "o\u0302\u0323", "\u0301", "\u0345\u0301", "\u1e9b\u0323", "\u212b", "\ufb01", "\u0344", "q\u0307\u0323", "\u1100\u1161\u11a8",
         "\u0903", "\u20dd", "a\u20dd", "\u0bbe", "\u1734", "\ufdfa", "\u33c7", "\u2460", "\u00bd", "\u00b2", "\u1d00", "\uff21", "\u3099", "\u09be\u09c7",
         "\u0130", "\u1e9e", "\u03a3", "\u1fbc", "\u01c5", "\u0149")
CONTROLS = tuple(map(chr, (0, 1, 7, 8, 0x1b, 0x1f, 0x7f, 0x80, 0x85, 0x9f, 0xad, 0x200c, 0x200d, 0x200e, 0x202e, 0x2060, 0xfff9, 0xfffd, 0xfffe,
                           0xe000, 0xe0001, 0xe0100, 0xf0000, 0x10fffd)))
DIGITS = ("0", "7", "12", "123", "1234", "12345678", "1,000,000", "3.14", "\u0663\u0664", "\u216b", "\u3007", "\U0001d7d8", "\U0001f10a")


def blocks():
    """Returns ranges of assigned characters, and of others."""
    found = [(0x20, 0x7e), (0xa0, 0x24f), (0x250, 0x36f), (0x370, 0x52f), (0x530, 0x8ff), (0x900, 0xdff), (0xe00, 0x109f), (0x10a0, 0x1fff),
             (0x2000, 0x2bff), (0x2c00, 0x2fff), (0x3000, 0x33ff), (0x3400, 0x9fff), (0xa000, 0xabff), (0xac00, 0xd7a3), (0xe000, 0xfaff),
             (0xfb00, 0xffff), (0x10000, 0x107ff), (0x10800, 0x11fff), (0x12000, 0x1b2ff), (0x1bc00, 0x1d7ff), (0x1d800, 0x1ffff),
             (0x20000, 0x323af), (0xe0000, 0xe01ef)]
    return found


def strings(count, seed, special):
    """Yields `count` strings. `special` are names of tokens that some of them contain."""
    rng = random.Random(seed)
    ranges = blocks()
    words = [word for text in PROSE + CODE for word in text.split(" ")]

    def random_character():
        low, high = rng.choice(ranges)
        return chr(rng.randint(low, high))

    def any_character():
        c = rng.randrange(0x110000 - 0x800)
        return chr(c if c < 0xd800 else c + 0x800)

    def piece():
        kind = rng.random()
        if kind < 0.40:
            return rng.choice(words)
        if kind < 0.50:
            return rng.choice(SPACES) * rng.choice((1, 1, 1, 2, 5))
        if kind < 0.56:
            return rng.choice(DIGITS)
        if kind < 0.62:
            return rng.choice(EMOJI)
        if kind < 0.69:
            return rng.choice(MARKS)
        if kind < 0.73:
            return rng.choice(CONTROLS)
        if kind < 0.79 and special:
            name = rng.choice(special)
            return rng.choice((name, name, " " + name + " ", name + name, name.upper(), name.lower(), name[:-1], "a" + name + "b"))
        if kind < 0.90:
            return "".join(random_character() for _ in range(rng.randint(1, 6)))
        if kind < 0.93:
            return any_character()
        if kind < 0.97:
            return rng.choice("abc!?.,'\"-_/\\()[]{}<>#$%&*+=~`^|:;@") * rng.choice((1, 1, 2, 3, 9, 40))
        return unicodedata.normalize(rng.choice(("NFC", "NFD", "NFKC", "NFKD")), rng.choice(words))

    for n in range(count):
        kind = n % 5
        if kind == 0:  # a part of prose or code
            text = rng.choice(PROSE + CODE)
            begin = rng.randrange(len(text))
            yield text[begin:begin + rng.randint(1, 80)]
        elif kind == 1:  # words with spaces
            yield rng.choice((" ", "", "\n")).join(rng.choice(words) for _ in range(rng.randint(1, 12)))
        elif kind == 2:  # a few pieces
            yield "".join(piece() for _ in range(rng.randint(1, 5)))
        elif kind == 3:  # many pieces
            yield "".join(piece() + rng.choice(("", "", " ")) for _ in range(rng.randint(3, 30)))
        else:  # characters of one block, with a few others
            low, high = rng.choice(ranges)
            yield "".join(chr(rng.randint(low, high)) if rng.random() < 0.9 else random_character() for _ in range(rng.randint(1, 20)))
