"""The designs of 59 cards with copy of brands that do not exist."""

# ruff: noqa: RUF001 - the signs of the copy are meant
from __future__ import annotations

from tests.support.images.cards import Card

NIGHT, CREAM, WHITE, SQUARE = "#14181f", "#f6f1e7", "#ffffff", (1024, 1024)
WIDE, TALL, SMALL, BIG = (1536, 1024), (1024, 1536), (512, 512), (2048, 2048)

_FACES = (
    Card("playfair", "serif", "playfair", 46, ("Alder & Finch", "Fine stationery since 1924", "Opening hours: 9 to 17"), heading=1.7),
    Card("garamond", "serif", "garamond", 30, ("Winter Lecture Series", "Professor Ida Holm", "Hall 3, 14 January, 18:30"), WIDE),
    Card("italic", "serif", "garamond italic", 44, ("A quiet evening of song", "Doors open at seven", "Free entry for members")),
    Card("lora", "serif", "lora", 26, ("Orchard Row Cider", "Pressed from 12 old varieties", "Serve chilled", "Alc. 4.5% vol."), SMALL, WHITE, "#3b2a1a"),
    Card("inter", "sans", "inter", 24, ("Your trip to Bergen", "Departs Gate 14B at 08:45", "Seat 22F, window", "Show this pass at boarding"), SMALL),
    Card("poppins", "sans", "poppins bold", 72, ("Summer Festival", "Three days of music", "12-14 July, Harbor Park"), WIDE, "#ffffff", "#d1495b"),
    Card("nunito", "sans", "nunito", 38, ("Little Otter Nursery", "Places free from September", "Call us for a visit"), SQUARE, "#26547c", "#ffe8d1"),
    Card("aileron", "sans", "aileron", 20, ("Release notes", "Faster search on large folders", "Fixed a crash on start", "Settings moved to the menu"), SMALL),
    Card("zilla", "slab", "zilla", 54, ("Harvest Supper", "Long table, open fire", "Bring a friend and a bottle"), SQUARE, "#2f3e2e", "#e9e3cf", 1.5),
    Card("robotoslab", "slab", "roboto slab", 34, ("Quarterly Results", "Revenue grew by 8 percent", "Margins held steady", "Outlook unchanged"), WIDE, CREAM, NIGHT),
    Card("barlow", "condensed", "barlow", 60, ("Night Shift Records", "New arrivals every Friday", "Open until late"), SQUARE, "#f2d16b", "#20201e"),
    Card("bebas", "condensed", "bebas", 90, ("IRON HARBOR GYM", "FIRST WEEK FREE", "NO CONTRACT NEEDED"), SQUARE, "#f7f7f7", "#1b3a4b"),
    Card("oswald", "ground", "oswald", 42, ("Match Day Saturday", "Rovers against Albion", "Kick off 15:00"), TALL, "#ffffff", "#5b2333", ground="blobs"),
    Card("caveat", "script", "caveat", 64, ("Happy birthday, Marta", "With love from the choir", "See you on Sunday")),
    Card("dancing", "script", "dancing", 58, ("Together at last", "Elin and Jonas", "Request your place by May"), SQUARE, "#5f4b66", "#fdf4f5"),
    Card("vibes", "script", "great vibes", 76, ("Grand Summer Gala", "Saturday the fifth of June", "Dinner and dancing")),
    Card("pacifico", "script", "pacifico", 52, ("Sunny Side Kitchen", "Pancakes all day long", "Closed on Mondays"), SQUARE, "#fff8e7", "#1f6f8b"),
    Card("marker", "script", "marker", 56, ("GARAGE SALE TODAY", "LAMPS, BOOKS AND TOOLS", "CASH ONLY PLEASE"), SQUARE, "#111111", "#ffe45c"),
    Card("lobster", "display", "lobster", 68, ("Captain's Bakery", "Warm rolls from six", "Coffee with free refill"), SQUARE, "#7a1f1f", "#fff3da"),
    Card("abril", "display", "abril", 70, ("The Velvet Review", "Issue twenty", "Fiction, poems and essays"), TALL, NIGHT, "#e7d9ea"),
    Card("righteous", "display", "righteous", 62, ("Retro Arcade Night", "Free play from eight", "High score wins a prize"), SQUARE, "#57f2c8", "#2b1055"),
    Card("spacemono", "mono", "space mono", 28, ("build finished in 42 s", "128 files were checked", "no warnings were found"), WIDE, "#b6f09c", "#101418"),
    Card("jetbrains", "mono", "jetbrains", 22, ("Server status: ready", "Queue length 17", "Last backup at 03:15", "Disk usage below limit"), SMALL, "#e6e6e6", "#22262e"),
    Card("pixel", "pixel", "pixel", 32, ("PLAYER ONE READY", "Press start to begin", "Lives: 3"), SQUARE, "#ffd166", "#0b132b"),
)  # fmt: skip

_LANGUAGES = (
    Card("german", "accents", "inter", 40, ("Bäckerei Grünwald", "Frische Brötchen für alle", "Täglich geöffnet außer Sonntag"), SQUARE),
    Card("german2", "accents", "playfair", 48, ("Große Herbstauktion", "Möbel, Gemälde und Bücher", "Eintritt überall frei"), WIDE, CREAM, "#33261d"),
    Card("french", "accents", "garamond", 44, ("Théâtre de l'Étoile", "Soirée à vingt heures", "Réservez dès demain"), SQUARE),
    Card("french2", "accents", "barlow", 56, ("Crème brûlée maison", "Goûtez nos pâtisseries", "Fermé en août"), SQUARE, "#402218", "#ffe6d5"),
    Card("polish", "accents", "nunito", 42, ("Świeże pączki codziennie", "Zniżka dla studentów", "Żółty ser i łosoś"), SQUARE),
    Card("polish2", "accents", "roboto slab", 30, ("Święto książki", "Wejście bezpłatne", "Kraków, piątek o ósmej"), SMALL, WHITE, "#7b2d26"),
    Card("spanish", "accents", "poppins", 46, ("Mañana empieza el otoño", "Café y jamón ibérico", "Visítenos también el sábado"), SQUARE),
    Card("spanish2", "accents", "lora", 34, ("Colección de pequeños jardines", "Edición única en español"), SMALL, "#1b4332", "#d8f3dc", 0.8),
    Card("portuguese", "accents", "zilla", 48, ("Pão quente às sete", "Feijão, maçã e limão", "Promoção só até amanhã"), SQUARE, "#14213d", "#fca311"),
)  # fmt: skip

_SIGNS = (
    Card("prices", "symbols", "inter", 50, ("Lunch menu €9.80", "Soup of the day £4.25", "Large tea $3.60"), SQUARE),
    Card("percent", "symbols", "poppins bold", 80, ("40% off lamps", "2 × 3 m rugs at 25%", "Until 31.10."), WIDE, "#ffffff", "#006d77"),
    Card("contact", "symbols", "aileron", 28, ("Questions? hello@oakmill.example", "Follow @oakmill and #oakmill", "Tel. +44 20 7946 0958"), SQUARE),
    Card("marks", "symbols", "nunito", 44, ("Lumora™ Sleep Lamp", "Dims at 21:00 & wakes at 7°", "Model LX-40/B"), SQUARE, CREAM, "#2d2a4a"),
    Card("weather", "symbols", "roboto slab", 58, ("Today 24°C, rain 15%", "Wind 12 km/h from W", "Room #4 & room #9"), WIDE),
)  # fmt: skip

_HARD = (
    Card("jpegserif", "jpeg", "garamond", 24, ("Terms of the raffle", "One ticket per household", "Winners are drawn on 5 March"), SMALL, quality=75),
    Card("jpegsans", "jpeg", "inter", 18, ("Keep refrigerated after opening", "Contains milk and hazelnuts", "Best before: see lid"), SQUARE, quality=75),
    Card("jpegscript", "jpeg", "dancing", 48, ("Hand made in small batches", "Rose, honey and thyme"), SQUARE, "#fff1e6", "#6d597a", quality=75),
    Card("turned90", "rotated", "oswald", 48, ("Fragile instruments", "This side up", "Handle with care"), SQUARE, angle=90),
    Card("turned180", "rotated", "poppins", 44, ("Return within 30 days", "Keep the receipt", "No refund on sale items"), WIDE, angle=180),
    Card("tilted", "rotated", "lobster", 60, ("Fresh lemonade", "Two for five", "Ask at the bar"), SQUARE, "#ffffff", "#3a5a40", angle=-12),
    Card("faint", "lowcontrast", "lora", 44, ("Silent Valley Retreat", "Rooms from 20 April", "Breakfast included"), SQUARE, "#cfc9bd", "#e9e4da"),
    Card("faintdark", "lowcontrast", "barlow", 50, ("Midnight Edition", "Limited to 500 pieces", "Numbered by hand"), SQUARE, "#4a4f58", "#2a2d33"),
    Card("tracked", "tracked", "poppins", 34, ("MAISON VERDE", "PERFUME ATELIER", "FLORENCE"), SQUARE, tracking=0.45, layout="center"),
    Card("tracked2", "tracked", "playfair", 40, ("NORTH WIND", "GALLERY OF PRINT", "LEVEL TWO"), WIDE, CREAM, NIGHT, tracking=0.6, layout="center"),
    Card("columns", "columns", "inter", 26, ("Starters", "Beetroot salad", "Leek soup", "Smoked trout", "Desserts", "Plum cake", "Lemon tart", "Cheese board"), SQUARE, layout="columns"),
    Card("columns2", "columns", "zilla", 36, ("Morning", "Yoga on the lawn", "Forest walk", "Evening", "Sauna and swim", "Fire and stories"), WIDE, "#fdf0d5", "#003049", layout="columns"),
    Card("small12", "small", "inter", 12, ("Batch 0417. Packed in a protective atmosphere.", "Store away from sunlight and heat.", "Recycle the lid separately."), SMALL),
    Card("small13", "small", "aileron", 13, ("Offer valid in all stores until the end of June.", "Not to be combined with other coupons."), SQUARE, CREAM, NIGHT),
    Card("small14", "small", "lora", 14, ("Printed on recycled paper by Hollow Tree Press.", "All rights of translation are reserved."), BIG),
    Card("gradient", "ground", "righteous", 66, ("Aurora Soft Drinks", "Lime, mint and ice", "Zero sugar"), SQUARE, "#ffffff", "#2a7f9e", ground="gradient"),
    Card("noise", "ground", "bebas", 84, ("BASEMENT TAPES", "LIVE AT THE DEPOT", "ONE NIGHT ONLY"), SQUARE, "#f4d35e", "#4b3f58", ground="noise"),
    Card("arc", "curved", "poppins bold", 52, ("MOUNTAIN ROAST COFFEE", "SMALL BATCH BEANS"), (1280, 1024), layout="arc"),
    Card("arc2", "curved", "zilla", 64, ("GARDEN OF HERBS", "SAGE AND MINT"), (1280, 1024), "#fefae0", "#283618", layout="arc"),
    Card("stack", "vertical", "oswald", 72, ("BAKERY", "MARKET"), (640, 768), layout="stack"),
    Card("stack2", "vertical", "roboto slab", 60, ("TAILOR",), (512, 640), "#ffffff", "#343a40", layout="stack"),
)  # fmt: skip

CARDS = (*_FACES, *_LANGUAGES, *_SIGNS, *_HARD)
