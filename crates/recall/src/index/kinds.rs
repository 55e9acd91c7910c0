//! Kinds of things that questions ask for ("Which instruments ..."), and common members of each kind, which occur in
//! the answers.
//!
//! A static word vector places a violin near music, but does not know that it is an instrument. Half of the evidence
//! missed on labelled conversations belongs to questions of this sort.

use toolyard_text::terms::{self, MEMORIES, Side};

/// A kind of entity that a question can ask for.
struct EntityKind {
    /// Words with which questions ask for this kind.
    asked: &'static str,
    /// Members of the kind, or words that occur only in texts about members.
    members: &'static str,
    /// The members are proper names, too many to list.
    named: bool,
}

/// The kinds that a question asks for, one bit for each entry of [`KINDS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kinds(u32);

impl Kinds {
    /// The kinds asked for by a question with what, which, who, where or how.
    pub(super) fn of_question(question: &str) -> Self {
        let mut kinds = 0;
        let mut asks = false;
        terms::words(question, |word| {
            asks |= matches!(word, "what" | "which" | "who" | "where" | "how" | "list" | "name");
            for (at, kind) in KINDS.iter().enumerate() {
                if kind.asked.split(' ').any(|asked| asked == word) {
                    kinds |= 1 << at;
                }
            }
        });
        Self(if asks { kinds } else { 0 })
    }

    fn each(self) -> impl Iterator<Item = &'static EntityKind> {
        KINDS.iter().enumerate().filter(move |(at, _)| self.0 & (1 << at) != 0).map(|(_, kind)| kind)
    }

    /// Whether the members of one of the kinds are mostly proper names.
    pub(super) fn have_names(self) -> bool {
        self.each().any(|kind| kind.named)
    }

    /// Calls `emit` with the term of each member.
    pub(super) fn members(self, mut emit: impl FnMut(&str)) {
        self.each().for_each(|kind| MEMORIES.terms(kind.members, Side::Question, |term, _| emit(term)));
    }
}

const fn kind(asked: &'static str, members: &'static str) -> EntityKind {
    EntityKind { asked, members, named: false }
}

const fn named(asked: &'static str, members: &'static str) -> EntityKind {
    EntityKind { asked, members, named: true }
}

const KINDS: [EntityKind; 30] = [
    kind(
        "sport sports athletic",
        "basketball football soccer tennis baseball hockey golf volleyball rugby cricket swimming running surfing \
         skiing snowboarding skating boxing karate judo wrestling climbing cycling sailing rowing \
         fencing badminton gymnastics martial marathon skateboarding kayaking",
    ),
    kind(
        "exercise exercises workout workouts fitness",
        "yoga pilates boxing running jogging weights weight lifting gym circuit cardio cycling \
         swimming stretching dancing aerobics workout training hike hiking marathon taekwondo",
    ),
    kind(
        "hobby hobbies activity activities interest interests pastime pastimes passions passion",
        "painting pottery reading writing cooking baking gardening knitting photography drawing gaming games \
         chess hiking camping fishing dancing singing guitar piano running yoga cycling sewing woodworking \
         birdwatching climbing swimming sculpting crafting woodwork surfing skateboarding",
    ),
    kind(
        "instrument instruments",
        "guitar piano violin clarinet flute drums cello trumpet saxophone harp ukulele keyboard bass banjo \
         harmonica viola trombone accordion oboe",
    ),
    named(
        "music genre genres",
        "jazz rock pop classical blues rap metal folk country reggae band concert album song singer orchestra \
         symphony",
    ),
    named(
        "country countries nation nations european abroad",
        "england spain france italy germany portugal ireland scotland greece turkey egypt india china japan korea \
         thailand vietnam indonesia australia canada mexico brazil argentina chile peru colombia cuba sweden \
         norway finland denmark iceland poland russia ukraine austria switzerland netherlands belgium morocco \
         kenya africa europe asia usa america britain uk wales israel nepal",
    ),
    named(
        "city cities town towns",
        "london paris rome berlin madrid barcelona lisbon dublin edinburgh vienna prague amsterdam athens \
         istanbul cairo tokyo kyoto seoul beijing shanghai bangkok singapore sydney melbourne toronto vancouver \
         montreal boston chicago seattle miami denver austin houston dallas york angeles francisco diego vegas \
         orleans washington philadelphia rio milan florence venice munich stockholm oslo copenhagen helsinki \
         budapest mumbai delhi dubai",
    ),
    named(
        "state states area areas region",
        "california texas florida oregon washington colorado arizona nevada utah michigan ohio illinois georgia \
         minnesota montana alaska hawaii virginia maine vermont connecticut pennsylvania wisconsin tennessee \
         carolina york massachusetts",
    ),
    named(
        "place places location locations spot spots where",
        "beach park mountain mountains forest lake river museum cafe restaurant library theater theatre zoo \
         island coast desert canyon castle village church gym studio waterfall trail",
    ),
    kind(
        "pet pets dog dogs breed breeds",
        "dog puppy cat kitten turtle rabbit hamster fish parrot bird snake lizard horse guinea pig bunny pup \
         retriever labrador terrier poodle shepherd husky beagle",
    ),
    kind(
        "animal animals",
        "dog cat turtle rabbit horse bird snake lizard fox wolf bear deer elephant lion tiger dolphin whale owl \
         eagle frog fish otter cow sheep goat",
    ),
    kind(
        "food foods dish dishes meal meals cuisine recipe recipes cook cooked",
        "pizza pasta sushi salad soup bread cheese chicken beef pork fish rice curry taco tacos burger sandwich \
         noodles steak salmon vegetables fruit chili stew roast muffins cake pie cookies chocolate lasagna ramen",
    ),
    kind(
        "dessert desserts treat treats bake baked",
        "cake pie cookies cookie brownie brownies pudding tart ice cream chocolate cupcake \
         cupcakes muffin muffins mousse custard cheesecake parfait donut pastry pastries",
    ),
    kind("drink drinks beverage", "coffee tea juice wine beer water smoothie soda cocktail milk lemonade whiskey"),
    kind(
        "illness illnesses disease condition conditions allergy allergies health injury injuries problem",
        "flu cold cancer diabetes asthma allergy allergies allergic migraine headache fever injury injured \
         sprained broken pain anxiety depression covid infection surgery arthritis eczema",
    ),
    named("movie movies film films", "trilogy sequel comedy drama thriller documentary netflix cinema theater"),
    named("book books novel novels read series author", "novel author series trilogy memoir fantasy biography"),
    named(
        "game games console",
        "chess monopoly poker playstation xbox nintendo console zelda mario pokemon \
         minecraft tetris scrabble cards dungeons",
    ),
    kind(
        "art artwork artworks",
        "painting drawing sculpture pottery sketch watercolor mural canvas portrait abstract photography",
    ),
    kind(
        "job jobs career occupation profession work",
        "engineer teacher nurse doctor lawyer banker manager designer developer writer chef driver actor artist \
         counselor therapist accountant salesperson intern internship barista waiter programmer analyst \
         photographer",
    ),
    kind(
        "relative relatives family who",
        "mother mom mum father dad sister brother son daughter wife husband grandmother grandma grandfather \
         grandpa aunt auntie uncle cousin niece nephew kids children partner boyfriend girlfriend fiance parents",
    ),
    kind(
        "color colour colors colours",
        "red blue green yellow purple orange pink black white brown grey gray gold silver turquoise",
    ),
    kind(
        "clothes clothing wear outfit",
        "shirt dress jacket coat shoes boots hat scarf jeans skirt sweater hoodie sneakers necklace ring bracelet \
         earrings gloves socks",
    ),
    kind("car vehicle vehicles transport", "car bike bicycle motorcycle truck bus train plane boat van scooter"),
    named(
        "event events",
        "party wedding concert festival fair parade conference workshop meetup tournament competition race \
         fundraiser gala marathon exhibition convention ceremony picnic reunion show",
    ),
    kind(
        "plant plants flower flowers",
        "rose roses tulip tulips sunflower sunflowers orchid lily lilies cactus herbs basil tomato tomatoes \
         succulents flowers daisy",
    ),
    kind(
        "subject subjects degree studies field fields major",
        "math mathematics physics chemistry biology history economics psychology law medicine engineering \
         literature philosophy politics art science",
    ),
    kind(
        "language languages",
        "english spanish french german italian portuguese chinese mandarin japanese korean arabic russian hindi \
         dutch",
    ),
    named("database databases", "postgresql postgres mysql sqlite mongodb redis oracle dynamodb elasticsearch"),
    named(
        "framework frameworks library libraries stack technologies tools",
        "flask django react angular vue rails spring express fastapi bootstrap tailwind laravel nextjs",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_asks_for_kinds_and_their_members_are_terms() {
        let kinds = Kinds::of_question("Which instruments does Ana play?");
        let mut members = Vec::new();
        kinds.members(|term| members.push(term.to_owned()));
        assert!(members.iter().any(|term| term == "violin") && !kinds.have_names(), "{members:?}");
        assert!(Kinds::of_question("What countries has Ana seen?").have_names());
        assert_eq!(Kinds::of_question("Ana likes instruments."), Kinds::default());
    }
}
