//! The patterns of sentences that are worth remembering.

use super::pattern::Pattern;
use crate::index::Category;
use std::sync::LazyLock;

/// One rule. Its named groups are `s` (the subject), `k` (the attribute) and `o` (the object).
pub(super) struct Rule {
    pub(super) pattern: Pattern,
    pub(super) category: Category,
    /// The key of the memory; `{k}` is replaced by the group of that name, `{o}` by the terms of the object.
    pub(super) key: &'static str,
    /// The key has a single value: a new value replaces the previous one.
    pub(super) single: bool,
    /// Whether the statement is affirmative.
    pub(super) positive: bool,
}

/// The subject of a sentence. Names start with a capital letter; "I" is the speaker.
const WHO: &str = r"(?P<s>\b[Ii]|\b[Ww]e|\b(?i:the user|user)|^\p{Lu}[\p{L}-]+(?: \p{Lu}[\p{L}-]+)?)";
const WHOSE: &str = r"(?P<s>\b(?i:my|our|the user's|user's)|^\p{Lu}[\p{L}-]+'s)";
/// Adverbs between subject and verb that do not change the meaning.
const ADVERBS: &str = r"(?: (?i:really|absolutely|actually|just|also|still|now|always|usually|generally|personally|especially|much|strongly|do|does|totally|truly|currently|recently|mostly|would))*";
/// The object, up to the next clause.
const OBJECT: &str = r"(?P<o>[^,;.!?()]+)";

/// Pattern, category, key, single, positive. `WHO`, `WHOSE`, `ADV` and `OBJ` stand for the patterns above. The rules
/// are tried in order, and the first match determines the memory.
const RULES: &[(&str, Category, &str, bool, bool)] = &[
    // Profile: who somebody is.
    (r"(?i:\bmy name is|\bcall me|\bi am called) (?P<o>\p{Lu}[\p{L}' -]+)", Category::Profile, "name", true, true),
    (
        r"WHOSE (?P<k>(?i:email|e-mail|phone|mobile|home|postal|time ?zone|job|job title|title|role|company|employer|major|hometown|nationality|native language|mother tongue|pronouns|birthday|age|blood type|diet|occupation|profession|salary|address|username|handle)(?: (?i:address|number|date))?) (?:is|are|was) OBJ",
        Category::Profile,
        "{k}",
        true,
        true,
    ),
    (
        r"WHO(?:'m|'re)?ADV (?i:am |is |are )?(?i:live|lives|living|based|moved|moving|relocated|relocating|residing|reside|resides)(?i: back)? (?i:in|to|at|near) OBJ",
        Category::Profile,
        "home",
        true,
        true,
    ),
    (
        r"WHO(?:'m)?ADV (?i:am |is |are |come |comes )?(?i:originally )?from (?P<o>(?:the )?\p{Lu}[^,;.!?()]*)",
        Category::Profile,
        "origin",
        true,
        true,
    ),
    (
        r"WHO(?:'m)?ADV (?i:am |is |are )?(?i:work|works|working|employed|started working|got a job|landed a job|got promoted to|was promoted to) ?(?P<k>(?i:as|at|for|in|with))? OBJ",
        Category::Profile,
        "work {k}",
        true,
        true,
    ),
    (
        r"WHO(?:'m)?ADV (?i:am|is|turned|turn|turns|just turned)? ?(?P<o>\d{1,3}) years old",
        Category::Profile,
        "age",
        true,
        true,
    ),
    (r"WHO (?i:was|were) born (?i:on|in) OBJ", Category::Profile, "birth", true, true),
    (r"WHOADV (?i:speak|speaks) (?P<o>\p{Lu}[^,;.!?()]*)", Category::Profile, "speaks {o}", false, true),
    (
        r"WHO(?:'m)? ?(?i:am|is|are)?ADV (?P<o>(?i:married|single|divorced|engaged|retired|pregnant|vegetarian|vegan|left-handed|color ?blind|colour ?blind|diabetic|gluten[- ]free|lactose intolerant|allergic to [^,;.!?()]+))",
        Category::Profile,
        "state {o}",
        false,
        true,
    ),
    (
        r"WHOADV (?i:study|studies|studied|am studying|is studying|graduated in|majored in|major in) OBJ",
        Category::Profile,
        "studies",
        false,
        true,
    ),
    (
        r"^(?:I am|I'm|i am|i'm|The user is|the user is|User is) (?:an?|the) (?P<o>[^,;.!?()]+)",
        Category::Profile,
        "is {o}",
        false,
        true,
    ),
    (r"我(?:的名字)?(?:叫|是叫)(?P<o>[^，。！？、]+)", Category::Profile, "name", true, true),
    (r"(?P<s>我|用户)(?:现在)?(?:住在|居住在|搬到了?)(?P<o>[^，。！？]+)", Category::Profile, "home", true, true),
    (r"(?P<s>我|用户)是(?P<o>[^，。！？]+)", Category::Profile, "is {o}", false, true),
    // Preferences: what somebody likes, and how they want things done.
    (
        r"WHOSE (?i:all-time |absolute )?(?i:favou?rite|preferred) (?P<k>[\p{L} -]{2,40}?) (?:is|are|was|has to be|would be) OBJ",
        Category::Preferences,
        "favourite {k}",
        true,
        true,
    ),
    (
        r"(?P<o>[\p{L}\d' -]{2,60}) (?:is|are) (?P<s>(?i:my|the user's)) (?i:favou?rite)(?: (?P<k>[\p{L} -]{2,40}))?",
        Category::Preferences,
        "favourite {k}",
        true,
        true,
    ),
    (
        r"WHOADV (?i:do not|does not|don't|doesn't|never|no longer)(?i: really| particularly| especially| ever)? (?i:like|likes|love|loves|enjoy|enjoys|prefer|want|wants|eat|eats|drink|drinks|use|uses|care for) OBJ",
        Category::Preferences,
        "about {o}",
        false,
        false,
    ),
    (
        r"WHO(?:'m)? ?(?i:am|is|are)? (?i:not|no longer)(?i: really| particularly)? (?i:into|fond of|interested in|a fan of|keen on) OBJ",
        Category::Preferences,
        "about {o}",
        false,
        false,
    ),
    (
        r"WHOADV (?i:hate|hates|dislike|dislikes|detest|detests|cannot stand|can't stand|avoid|avoids|despise|despises) OBJ",
        Category::Preferences,
        "about {o}",
        false,
        false,
    ),
    (
        r"WHOADV (?i:like|likes|love|loves|loved|adore|adores|enjoy|enjoys|enjoyed|prefer|prefers|preferred|favor|favors|favour|favours) OBJ",
        Category::Preferences,
        "about {o}",
        false,
        true,
    ),
    (
        r"WHO(?:'m)? ?(?i:am|is|are)?ADV (?i:a (?:big |huge |great )?fan of|fond of|into|interested in|passionate about|crazy about|keen on|obsessed with) OBJ",
        Category::Preferences,
        "about {o}",
        false,
        true,
    ),
    (
        r"^(?i:please |from now on,? )?(?i:always|never|do not ever|don't ever) OBJ",
        Category::Preferences,
        "instruction {o}",
        false,
        true,
    ),
    (
        r"^(?i:from now on|in future|in the future|going forward),? OBJ",
        Category::Preferences,
        "instruction {o}",
        false,
        true,
    ),
    (
        r"(?P<s>我|用户)?[^，。！？]*?(?:不喜欢|不喜歡|讨厌|討厭|不再喜欢|不想用)(?P<o>[^，。！？]+)",
        Category::Preferences,
        "about {o}",
        false,
        false,
    ),
    (
        r"(?P<s>我|用户)?[^，。！？]*?(?:偏好|更喜欢|喜欢|喜歡|习惯|習慣|爱好|倾向于)(?:使用|用|是)?(?P<o>[^，。！？]+)",
        Category::Preferences,
        "about {o}",
        false,
        true,
    ),
    (r"(?P<o>[^、。！？]+)(?:が|は)(?:大?好き|嫌い)", Category::Preferences, "about {o}", false, true),
    // Entities: persons, animals, places, projects.
    (
        r"WHOSE (?P<k>[\p{L} -]{2,30}?)(?:,| is| are|'s name is|'s)? (?i:named|called|name is) (?P<o>\p{Lu}[^,;.!?()]*)",
        Category::Entities,
        "{k} name",
        false,
        true,
    ),
    (
        r"WHOSE (?P<k>(?i:wife|husband|partner|girlfriend|boyfriend|fianc[eé]e?|son|daughter|kid|child|mother|mom|father|dad|brother|sister|aunt|uncle|cousin|grandmother|grandma|grandfather|grandpa|dog|cat|puppy|kitten|pet|bird|horse|boss|manager|colleague|coworker|friend|roommate|neighbou?r|teacher|doctor|team|company|project|startup|product|website|app|repo|repository|server|database|car|bike|house|apartment|laptop|phone|computer|editor|school|university)),? (?:is|are|was|has|have|lives|works|runs|uses|,) OBJ",
        Category::Entities,
        "{k}",
        false,
        true,
    ),
    (
        r"WHOADV (?i:have|has|own|owns|got|adopted|bought) (?P<o>(?i:an?|two|three|four|five|\d) (?i:[\p{L}-]+ )?(?i:dogs?|cats?|puppy|puppies|kittens?|pets?|birds?|horses?|kids?|children|sons?|daughters?|brothers?|sisters?|siblings?|cars?|bikes?|house|apartment|servers?|laptops?)[^,;.!?()]*)",
        Category::Entities,
        "has {o}",
        false,
        true,
    ),
    (
        r"^(?P<s>\p{Lu}[\p{L}\d.-]+(?: \p{Lu}[\p{L}\d.-]+){0,2}) (?:is|are) (?P<o>(?:an?|the|our|my|your|written|used|located|based|made|built)\b[^,;.!?()]+)",
        Category::Entities,
        "is",
        false,
        true,
    ),
];

/// The compiled rules. A test asserts that every pattern compiles.
pub(super) static COMPILED: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let compile = |(pattern, category, key, single, positive): &(&str, Category, &'static str, bool, bool)| {
        let whole = pattern.replace("WHOSE", WHOSE).replace("WHO", WHO).replace("ADV", ADVERBS).replace("OBJ", OBJECT);
        let pattern = Pattern::new(&whole)?;
        Some(Rule { pattern, category: *category, key, single: *single, positive: *positive })
    };
    RULES.iter().filter_map(compile).collect()
});

/// Whether a sentence describes a solution.
pub(super) fn tells_solution(sentence: &str) -> bool {
    contains_any(
        sentence,
        &[
            "fixed",
            "solved",
            "resolved",
            "workaround",
            "root cause",
            "turned out",
            "the fix ",
            "the solution",
            "the cause was",
            "the problem was",
            "the issue was",
            "works now",
            "解决",
            "修复",
            "原因是",
        ],
    )
}

/// Whether a sentence describes a problem.
pub(super) fn tells_problem(sentence: &str) -> bool {
    contains_any(
        sentence,
        &[
            "error",
            "fails",
            "failed",
            "failing",
            "crash",
            "problem",
            "issue",
            "bug",
            "broken",
            "does not work",
            "doesn't work",
            "not working",
            "cannot ",
            "can't ",
            "exception",
            "timeout",
            "报错",
            "失败",
            "问题",
            "错误",
        ],
    )
}

/// Whether a sentence corrects an earlier statement.
pub(super) fn corrects(sentence: &str) -> bool {
    contains_any(
        sentence,
        &[
            "actually",
            "no longer",
            "not anymore",
            "any more",
            "anymore",
            "instead of",
            "correction",
            "i meant",
            "changed my mind",
            "used to",
            "now prefer",
            "switched",
            "moved to",
            "rather than",
            "其实",
            "不再",
            "改成",
            "改为",
            "更正",
        ],
    )
}

/// Whether a sentence is a wish or a courtesy that only looks like a preference.
pub(super) fn is_courtesy(sentence: &str) -> bool {
    contains_any(
        sentence,
        &[
            "would like",
            "'d like",
            "would love to",
            "'d love to",
            "i like that",
            "love that",
            "love it",
            "i love your",
            "i like your",
            "looks like",
            "feel like",
            "sounds like",
            "seems like",
        ],
    )
}

fn contains_any(sentence: &str, words: &[&str]) -> bool {
    let lower = sentence.to_lowercase();
    words.iter().any(|word| lower.contains(word))
}

/// Whether a text states a preference or a habit.
pub fn states_preference(text: &str) -> bool {
    let mut found = false;
    toolyard_text::terms::words(text, |word| {
        found |= matches!(
            word,
            "favorite"
                | "favourite"
                | "favorites"
                | "favourites"
                | "love"
                | "loves"
                | "enjoy"
                | "enjoys"
                | "prefer"
                | "prefers"
                | "preferred"
                | "hate"
                | "hates"
                | "dislike"
                | "dislikes"
                | "fan"
                | "passion"
                | "passionate"
        );
    });
    found || ["偏好", "喜欢", "喜歡", "习惯", "讨厌", "好き"].iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles() {
        assert_eq!(COMPILED.len(), RULES.len());
    }
}
