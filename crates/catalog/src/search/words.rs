//! Words that say nothing about a tool, and words that say the same thing. Kept short and general on purpose: they
//! describe how people ask, not any one catalog.

/// Words that carry no meaning for the choice of a tool: the glue of English, and of asking for something.
const STOPWORDS: &str = "a about above after again all also am an and any are aren as at be because been before being \
below between both but by can cannot could couldn d did didn do does doesn doing don down during each etc few for from \
further had hadn has hasn have haven having he her here hers herself him himself his how however i if in into is isn it \
its itself just ll m me more most my myself no nor not now of off on once only or other our ours ourselves out over own \
re s same shan she should shouldn so some such t than that the their theirs them themselves then there these they this \
those through to too under until up us ve very was wasn we were weren what when where which while who whom whose why \
will with won would wouldn you your yours yourself yourselves \
please want wants wanted need needs needed like would'd let lets help helps helping kindly thanks thank hey hi hello \
tell show give gives given provide provides provided providing able using use used uses via i'm i'd currently \
looking trying going know interested curious wondering wonder could've maybe really additionally furthermore moreover \
tool tools function functions api apis";

/// Groups of words that ask for the same thing.
const THESAURUS: &[&str] = &[
    "weather forecast meteorology climate temperature",
    "picture image photo photograph",
    "movie film cinema",
    "video clip footage",
    "song music track tune audio",
    "buy purchase order shop shopping",
    "price cost pricing quote",
    "car vehicle automobile auto",
    "job career employment vacancy",
    "hotel accommodation lodging stay room",
    "flight airline plane airfare",
    "trip travel journey vacation itinerary holiday tour",
    "restaurant dining eat meal",
    "recipe cooking cook dish ingredient",
    "doctor medical health medicine physician clinic",
    "law legal lawyer attorney",
    "company business firm enterprise corporation",
    "stock share equity ticker",
    "crypto cryptocurrency bitcoin coin token",
    "money currency finance payment",
    "translate translation language",
    "mail email message inbox",
    "send deliver dispatch transmit",
    "create make generate produce build new",
    "delete remove erase drop trash",
    "edit modify change update alter",
    "find search lookup locate query discover",
    "fetch retrieve get obtain load",
    "list enumerate show catalog",
    "calculate compute calculation calculator",
    "convert transform conversion converter",
    "check verify validate test",
    "compare comparison versus difference",
    "book reserve booking reservation appointment",
    "schedule calendar event meeting plan",
    "remind reminder alarm notify notification alert",
    "summary summarize abstract digest",
    "paper article research publication study",
    "news headline journalism",
    "learn education study course teach tutor lesson",
    "child kid children",
    "exercise workout fitness gym training",
    "diet nutrition calorie food",
    "house home property estate apartment",
    "map route direction navigation",
    "distance length far",
    "location place address position geolocation",
    "nearby near around closest",
    "person people user profile",
    "friend contact follower",
    "website site webpage web url link page",
    "code program programming source",
    "database sql table",
    "file document pdf",
    "folder directory",
    "note memo",
    "read open view",
    "write save store",
    "rename move",
    "upload import",
    "download export",
    "run execute launch start",
    "stop cancel abort end",
    "error bug issue problem",
    "chart graph plot diagram visualization",
    "statistic stats statistics analytics metric",
    "game match play",
    "team club squad",
    "score result standings",
    "gift present",
    "joke humor funny fun",
    "random arbitrary",
    "password credential secret login",
    "phone telephone mobile number",
    "country nation",
    "city town",
    "date day time",
    "average mean",
    "sum total add addition",
    "multiply product multiplication",
    "divide division quotient",
    "big large",
    "color colour",
    "recommend recommendation suggest suggestion",
    "review rating opinion feedback",
    "explain describe description detail details info information",
    "copy duplicate clone",
    "tax taxation",
    "loan mortgage credit",
    "sell sale selling",
    "pet animal dog cat",
    "clothes clothing fashion outfit wear",
    "horoscope astrology zodiac",
    "podcast episode",
    "resume cv",
    "chat conversation talk",
    "speech voice spoken",
];

/// Whether a word (in lower case) says nothing.
pub(super) fn stopwords() -> impl Iterator<Item = &'static str> {
    STOPWORDS.split_whitespace()
}

/// The groups of the thesaurus.
pub(super) fn thesaurus() -> impl Iterator<Item = Vec<&'static str>> {
    THESAURUS.iter().map(|group| group.split_whitespace().collect())
}
