//! The texts of the visitor page in English and Korean, and the wording of numbers and durations.
//!
//! The rendered page uses these texts, and passes them to the scripts of the live page.

use serde::{Deserialize, Serialize};

/// The languages of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lang {
    En,
    Ko,
}

impl Lang {
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Ko => "ko",
        }
    }

    pub(crate) fn words(self) -> &'static Words {
        match self {
            Self::En => &EN,
            Self::Ko => &KO,
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::En => Self::Ko,
            Self::Ko => Self::En,
        }
    }

    /// Parses a language tag such as `ko-KR`.
    fn of_tag(tag: &str) -> Option<Self> {
        match tag.trim().split(['-', '_']).next()?.to_ascii_lowercase().as_str() {
            "en" => Some(Self::En),
            "ko" => Some(Self::Ko),
            _ => None,
        }
    }

    /// Chooses the language of `?lang=`, else the one that the browser prefers, else English. The second value is whether
    /// `?lang=` decided: then forms have to keep it.
    pub(crate) fn choose(requested: Option<&str>, accept: Option<&str>) -> (Self, bool) {
        if let Some(lang) = requested.and_then(Self::of_tag) {
            return (lang, true);
        }
        let mut best: Option<(Self, f32)> = None;
        for part in accept.unwrap_or_default().split(',') {
            let mut fields = part.split(';');
            let Some(lang) = fields.next().and_then(Self::of_tag) else {
                continue;
            };
            let weight = fields
                .find_map(|field| field.trim().strip_prefix("q="))
                .map_or(1.0, |text| text.parse().unwrap_or(0.0));
            // The first of equals, as browsers list them.
            if weight > best.map_or(0.0, |(_, most)| most) {
                best = Some((lang, weight));
            }
        }
        (best.map_or(Self::En, |(lang, _)| lang), false)
    }
}

/// The texts that a room can replace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Texts {
    pub(crate) title: String,
    pub(crate) intro: String,
    /// What happens next, one step per line.
    pub(crate) next: String,
    pub(crate) granted: String,
    pub(crate) closed: String,
}

/// A room's own texts. Absent ones have their default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnTexts {
    pub title: Option<String>,
    pub intro: Option<String>,
    pub next: Option<String>,
    pub granted: Option<String>,
    pub closed: Option<String>,
}

impl Texts {
    pub(crate) fn new(lang: Lang, own: &OwnTexts) -> Self {
        let words = lang.words();
        let or = |own: &Option<String>, default: &str| own.clone().unwrap_or_else(|| default.to_owned());
        Self {
            title: or(&own.title, words.title),
            intro: or(&own.intro, words.intro),
            next: or(&own.next, words.next),
            granted: or(&own.granted, words.granted),
            closed: or(&own.closed, words.closed),
        }
    }
}

macro_rules! words {
    ($($name:ident: $en:literal, $ko:literal;)*) => {
        /// Every sentence of the page. [`fill`] replaces placeholders like `{n}`.
        #[derive(Debug, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct Words {
            $(pub(crate) $name: &'static str,)*
        }
        static EN: Words = Words { $($name: $en,)* };
        static KO: Words = Words { $($name: $ko,)* };
    };
}

words! {
    title: "Waiting room", "대기실";
    intro: "Many people want to get in at the same time. Everyone is let in one after another, in order.",
        "지금 많은 분이 동시에 접속하고 있습니다. 모든 분이 차례대로 입장합니다.";
    next: "Keep this page open. It updates automatically.\nWhen it is your turn, you are taken to the shop.\nYour turn is held for a limited time, so stay nearby.",
        "이 페이지를 열어 두세요. 자동으로 갱신됩니다.\n차례가 되면 상점으로 이동합니다.\n차례는 정해진 시간 동안만 유지되니 가까이에 계세요.";
    granted: "Continue to the shop while your pass is valid.",
        "입장권이 유효한 동안 상점으로 이동하세요.";
    closed: "No one else is let in.", "더 이상 입장할 수 없습니다.";

    language_name: "English", "한국어";
    language: "Language", "언어";
    skip: "Skip to content", "본문으로 건너뛰기";
    status: "Status", "상태";
    status_open: "Open", "입장 진행 중";
    status_paused: "Paused", "일시 중지";
    status_not_open: "Not open yet", "시작 전";
    status_sold_out: "Sold out", "매진";
    status_closed: "Closed", "종료";

    position: "Your position", "내 순서";
    position_value: "{n}", "{n}번";
    ahead: "Ahead of you", "내 앞";
    behind: "Behind you", "내 뒤";
    waiting: "Waiting now", "현재 대기";
    already_here: "Already here", "먼저 온 사람";
    people: "{n}", "{n}명";
    eta: "Estimated wait", "예상 대기 시간";
    eta_unknown: "Not known yet", "아직 알 수 없음";
    progress: "Progress from where you started to the front", "처음 순서에서 맨 앞까지의 진행 상황";
    started_at: "Started at {n}", "시작 {n}번";
    front: "Front", "맨 앞";
    next_heading: "What happens next", "다음 순서 안내";
    updated: "As of {time}", "{time} 기준";

    seconds: "{n} seconds", "{n}초";
    second: "{n} second", "{n}초";
    minute: "{n} minute", "{n}분";
    minutes: "{n} minutes", "{n}분";
    hour: "{n} hour", "{n}시간";
    hours: "{n} hours", "{n}시간";
    hours_half: "{n}½ hours", "{n}시간 30분";
    days: "{n} days", "{n}일";
    less_than_minute: "less than a minute", "1분 이내";
    up_to: "up to {high}", "최대 {high}";
    about: "about {high}", "약 {high}";
    about_range: "about {low} to {high}", "약 {low}~{high}";
    more_than_day: "more than a day", "하루 이상";

    join_heading: "Join the queue", "대기열에 참여하세요";
    join_early: "Not open yet, but you can already join", "시작 전이지만 참여할 수 있습니다";
    join: "Join the queue", "대기열 참여하기";
    joining: "Joining the queue …", "대기열에 참여하는 중 …";
    proof_working: "One moment … Your browser solves a small puzzle first. That keeps bots out of the queue.",
        "잠시만요 … 먼저 브라우저가 간단한 계산을 합니다. 봇의 접속을 막기 위한 절차입니다.";
    proof_progress: "Estimated progress of the puzzle", "예상 계산 진행 상황";
    proof_attempts: "{n} tries so far. It takes {all} on average, depending on luck.",
        "지금까지 {n}번 시도했습니다. 평균 {all}번이 필요하며 운에 따라 달라집니다.";
    proof_refused: "The puzzle took too long, or your network changed in the meantime. Please try again.",
        "계산이 너무 오래 걸렸거나 그동안 네트워크가 바뀌었습니다. 다시 시도해 주세요.";
    needs_script: "This room needs JavaScript: before you can join, your browser has to solve a small puzzle, which keeps bots out. Please turn JavaScript on, then reload this page.",
        "이 대기실은 자바스크립트가 필요합니다. 봇의 접속을 막기 위해 참여하기 전에 브라우저가 간단한 계산을 해야 합니다. 자바스크립트를 켠 뒤 이 페이지를 다시 불러와 주세요.";
    check: "Check again", "다시 확인";
    leave: "Leave the queue", "대기열에서 나가기";
    leave_question: "Leave the queue?", "대기열에서 나갈까요?";
    leave_text: "You will lose your place. If you come back, you start at the end.",
        "지금 순서를 포기하게 됩니다. 다시 오면 맨 뒤에서 시작합니다.";
    leave_yes: "Leave", "나가기";
    leave_no: "Keep my place", "계속 기다리기";
    again: "Join again at the end", "맨 뒤에서 다시 참여하기";
    grace_notice: "Closed the tab, or lost the connection? Your place is kept for {span}.",
        "창을 닫거나 연결이 끊겨도 {span} 동안 순서가 유지됩니다.";
    no_script: "Without JavaScript this page does not update automatically. Check again at least every {span} to keep your place.",
        "자바스크립트가 꺼져 있어 자동으로 갱신되지 않습니다. 순서를 유지하려면 {span} 안에 다시 확인하세요.";

    early_heading: "You are in the draw", "추첨 대상입니다";
    early_text: "Everyone who is here before the opening takes part in a draw. At the opening it gives each person a random position, so it does not matter who came first. Anyone who comes later is placed behind.",
        "시작 전에 온 모든 분이 추첨에 참여합니다. 시작할 때 무작위로 순서가 정해지므로 먼저 왔는지는 상관없습니다. 나중에 온 분은 그 뒤에 섭니다.";
    opens_in: "Opens in", "시작까지";
    opens_at: "Opens at {time}", "{time} 시작";
    opens_soon: "Opening now …", "곧 시작합니다 …";

    next_one: "You are next", "바로 다음 차례입니다";
    paused_text: "Admission is paused at the moment. Your place is kept, and the queue continues automatically.",
        "지금은 입장이 잠시 멈췄습니다. 순서는 유지되며 자동으로 다시 진행됩니다.";
    paused_join: "Admission is paused at the moment. You can join the queue in the meantime.",
        "지금은 입장이 잠시 멈췄습니다. 미리 대기열에 참여할 수 있습니다.";
    sold_out_text: "Every seat is sold. No one else is let in unless seats are added.",
        "모든 좌석이 판매되었습니다. 좌석이 추가되지 않는 한 더 입장할 수 없습니다.";
    sold_out_heading: "Sold out", "매진되었습니다";
    sold_out_over: "Every seat is sold. Thank you for waiting.", "모든 좌석이 판매되었습니다. 기다려 주셔서 감사합니다.";
    closed_heading: "This room is closed", "대기실이 닫혔습니다";
    full_heading: "The waiting room is full", "대기실이 가득 찼습니다";
    full_text: "No more people can join at the moment. Please try again in a few minutes.",
        "지금은 더 참여할 수 없습니다. 몇 분 뒤에 다시 시도해 주세요.";

    granted_heading: "It is your turn", "입장할 차례입니다";
    go: "Go to the shop", "상점으로 이동";
    redirecting: "You will be taken there in {n} s.", "{n}초 뒤에 자동으로 이동합니다.";
    stay: "Stay here", "여기에 머무르기";
    redirect_stopped: "Continue whenever you are ready.", "준비가 되면 이동하세요.";
    pass: "Your pass", "입장권";
    pass_for: "Valid for another {span}", "앞으로 {span} 동안 유효";
    pass_expired: "The pass has expired", "입장권이 만료되었습니다";
    copy: "Copy", "복사";
    copied: "Copied", "복사했습니다";
    give_up: "Give up my turn", "입장 포기하기";
    give_up_question: "Give up your turn?", "입장을 포기할까요?";
    inside_heading: "You are inside", "입장했습니다";
    inside_text: "Your visit continues in the shop. You can close this page.",
        "상점에서 계속 이용하세요. 이 페이지는 닫아도 됩니다.";

    completed_heading: "All done", "완료되었습니다";
    completed_text: "Your visit is complete. Thank you for coming.", "방문이 완료되었습니다. 이용해 주셔서 감사합니다.";
    left_heading: "You have left the queue", "대기열에서 나갔습니다";
    left_text: "Your place went to the next person. You can join again at the end of the queue.",
        "순서는 다음 분에게 넘어갔습니다. 맨 뒤에서 다시 참여할 수 있습니다.";
    lost_heading: "Your place is gone", "순서가 만료되었습니다";
    lost_text: "This browser was disconnected for longer than a place is kept.",
        "순서가 유지되는 시간보다 오래 연결이 끊겨 있었습니다.";
    no_show_heading: "Your turn has passed", "입장 시간이 지났습니다";
    no_show_text: "You were let in, but did not use your pass in time.",
        "차례가 되었지만 정해진 시간 안에 입장하지 않았습니다.";
    expired_heading: "Your time inside is over", "이용 시간이 끝났습니다";
    expired_text: "Your visit took longer than allowed, so others were let in.",
        "이용 가능한 시간이 지나 다음 분이 입장했습니다.";
    ended_heading: "Your place is gone", "순서가 종료되었습니다";

    superseded_heading: "You continued in another tab", "다른 창에서 계속하고 있습니다";
    superseded_text: "Another tab or device shows your place now. It is the same place: nothing is lost.",
        "다른 창이나 기기에서 순서를 표시하고 있습니다. 같은 순서이며 잃은 것은 없습니다.";
    use_here: "Use here instead", "여기에서 계속하기";

    offline_for: "Reconnecting. Your place is kept for {span}.", "다시 연결하는 중입니다. {span} 동안 순서가 유지됩니다.";
    offline: "Reconnecting. This is the last known state.", "다시 연결하는 중입니다. 마지막으로 확인한 내용입니다.";
    busy: "Many people are joining at once. Trying again automatically.", "접속이 몰리고 있습니다. 자동으로 다시 시도합니다.";
    too_many: "Too many requests. Please try again in a moment.", "요청이 너무 잦습니다. 잠시 뒤에 다시 시도해 주세요.";
    unavailable: "The waiting room is unavailable at the moment. Places are kept; please try again in a moment.",
        "대기실을 잠시 이용할 수 없습니다. 순서는 유지됩니다. 잠시 뒤에 다시 시도해 주세요.";
    refused: "This browser cannot join the queue.", "이 브라우저에서는 대기열에 참여할 수 없습니다.";
    unavailable_heading: "One moment, please", "잠시만 기다려 주세요";
    missing_heading: "Waiting room not found", "대기실을 찾을 수 없습니다";
    missing_text: "The address may be misspelt, or the room no longer exists.",
        "주소가 잘못되었거나 대기실이 더 이상 없습니다.";

    tab_turn: "Your turn", "입장하세요";
    tab_paused: "Paused", "일시 중지";

    announce_proof: "One moment, your browser is working.", "잠시만요, 브라우저가 계산하고 있습니다.";
    announce_early: "You are in the draw.", "추첨에 참여했습니다.";
    announce_joined: "You joined the queue. You are number {n}.", "대기열에 참여했습니다. {n}번입니다.";
    announce_halfway: "You are halfway there. You are number {n}.", "절반을 지났습니다. {n}번입니다.";
    announce_position: "You are number {n}.", "{n}번입니다.";
    announce_next: "You are next.", "바로 다음 차례입니다.";
    announce_paused: "Paused. Your place is kept.", "일시 중지되었습니다. 순서는 유지됩니다.";
    announce_resumed: "Admission continues.", "입장이 다시 진행됩니다.";
    announce_granted: "It is your turn.", "입장할 차례입니다.";
}

/// Replaces the placeholders in braces.
pub(crate) fn fill(text: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

/// A number with thousands separators, as both languages write it.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const MINUTE_MS: u64 = 60_000;
const DAY: u64 = 24 * 60;

/// The rounding step in minutes: coarser for longer times.
fn step(minutes: u64) -> u64 {
    match minutes {
        0..=10 => 1,
        11..=60 => 5,
        61..=180 => 30,
        _ => 60,
    }
}

/// Words minutes as minutes, or beyond one hour as whole or half hours.
fn amount(words: &Words, minutes: u64) -> String {
    let (n, text) = match minutes {
        1 => (1, words.minute),
        0..60 => (minutes, words.minutes),
        60 => (1, words.hour),
        _ if minutes.is_multiple_of(60) => (minutes / 60, words.hours),
        _ => (minutes / 60, words.hours_half),
    };
    fill(text, &[("n", &n.to_string())])
}

/// Words a range of time without false precision.
pub(crate) fn duration_range(words: &Words, low_ms: u64, high_ms: u64) -> String {
    let high_ms = high_ms.max(low_ms);
    if high_ms < MINUTE_MS {
        return words.less_than_minute.to_owned();
    }
    let (low, high) = (low_ms / MINUTE_MS, high_ms.div_ceil(MINUTE_MS).min(DAY));
    if low >= DAY {
        return words.more_than_day.to_owned();
    }
    let high = high.div_ceil(step(high)) * step(high);
    let low = low / step(low) * step(low);
    let most = amount(words, high);
    if low == 0 {
        return fill(words.up_to, &[("high", &most)]);
    }
    if low == high {
        return fill(words.about, &[("high", &most)]);
    }
    // “4 to 6 minutes”: a common unit comes once.
    let least = if high < 60 {
        low.to_string()
    } else if low >= 60 && low.is_multiple_of(60) && high.is_multiple_of(60) {
        (low / 60).to_string()
    } else {
        amount(words, low)
    };
    fill(words.about_range, &[("low", &least), ("high", &most)])
}

/// Words a fixed duration: seconds up to 90, else whole minutes or hours.
pub(crate) fn duration(words: &Words, ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        1 => fill(words.second, &[("n", "1")]),
        0..90 => fill(words.seconds, &[("n", &seconds.to_string())]),
        90..3_600 => amount(words, seconds / 60),
        _ => amount(words, seconds / 3_600 * 60),
    }
}

/// Words the time until an opening, for a page without a countdown: whole days if it is distant.
pub(crate) fn until_opening(words: &Words, ms: u64) -> String {
    let days = ms / (DAY * MINUTE_MS);
    match days {
        0 | 1 => duration_range(words, ms, ms),
        _ => fill(words.days, &[("n", &count(days))]),
    }
}
