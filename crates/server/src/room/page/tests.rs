//! The visitor page escapes everything, is complete in both languages, and shows every state with its actions.

use tidegate_api::{EtaRange, Pass, RoomStatus, Ticket, TicketEnd, TicketState, Time};

use super::words::{count, duration, duration_range};
use super::*;

const NOW: Time = Time(1_772_359_200_000);

fn ticket(state: TicketState) -> Ticket {
    Ticket {
        room: "concert".to_owned(),
        person: "somebody".to_owned(),
        number: None,
        state,
        room_status: RoomStatus::Open,
        position: None,
        ahead: None,
        behind: None,
        waiting: 1_500,
        eta: None,
        opens_at: None,
        pass: None,
        end: None,
        at: NOW,
    }
}

fn waiting() -> Ticket {
    Ticket {
        position: Some(1_204),
        ahead: Some(1_203),
        behind: Some(296),
        eta: Some(EtaRange {
            low_ms: 250_000,
            likely_ms: 300_000,
            high_ms: 350_000,
        }),
        ..ticket(TicketState::Waiting)
    }
}

fn granted(go_to: Option<&str>) -> Ticket {
    let pass = Pass {
        token: "v1.abc<def>".to_owned(),
        expires_at: Time(NOW.0 + 240_000),
        go_to: go_to.map(str::to_owned),
    };
    Ticket {
        pass: Some(pass),
        ..ticket(TicketState::Granted)
    }
}

fn ended(end: TicketEnd) -> Ticket {
    Ticket {
        end: Some(end),
        ..ticket(TicketState::Ended)
    }
}

fn page(lang: Lang, ticket: Option<Ticket>, change: impl FnOnce(&mut PageView)) -> String {
    page_of(&OwnTexts::default(), lang, ticket, change)
}

fn page_of(own: &OwnTexts, lang: Lang, ticket: Option<Ticket>, change: impl FnOnce(&mut PageView)) -> String {
    let texts = Texts::new(lang, own);
    let mut view = PageView {
        room: "concert",
        texts: &texts,
        lang,
        lang_chosen: false,
        coloured: false,
        needs_proof: false,
        status: RoomStatus::Open,
        opens_at: None,
        waiting: 1_500,
        at: NOW,
        grace_ms: 45_000,
        ticket,
        notice: None,
    };
    change(&mut view);
    render(&view)
}

/// The visible part of the page, after the data for the scripts.
fn content(page: &str) -> &str {
    page.split_once("<main").unwrap().1
}

#[test]
fn all_foreign_text_is_escaped() {
    let evil = "\"><script>alert('x')</script>&";
    let own = OwnTexts {
        title: Some(evil.to_owned()),
        intro: Some(evil.to_owned()),
        next: Some(format!("{evil}\n{evil}")),
        granted: Some(evil.to_owned()),
        closed: Some(evil.to_owned()),
    };
    let mut shop = granted(Some(&format!("https://shop.example/?{evil}")));
    shop.room = evil.to_owned();
    let mut closed = waiting();
    closed.room_status = RoomStatus::Closed;
    for ticket in [
        None,
        Some(waiting()),
        Some(shop),
        Some(granted(None)),
        Some(closed),
    ] {
        let page = page_of(&own, Lang::En, ticket, |view| {
            view.room = evil;
            view.coloured = true;
            view.status = RoomStatus::Closed;
        });
        assert!(!page.contains("<script>"), "{page}");
        assert!(!page.contains("alert('x')<"), "{page}");
        assert_eq!(page.matches("<script").count(), 2, "only the scripts of the page");
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(
            !page.contains("style=") && !page.contains("onclick"),
            "the content security policy forbids them"
        );
    }
}

#[test]
fn the_data_for_the_scripts_is_valid_json() {
    let own = OwnTexts {
        title: Some("</script><!-- & \u{2028}".to_owned()),
        ..OwnTexts::default()
    };
    let page = page_of(&own, Lang::En, Some(waiting()), |_| {});
    let (_, after) = page.split_once("id=\"page-data\">").unwrap();
    let (json, _) = after.split_once("</script>").unwrap();
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(value["texts"]["title"], "</script><!-- & \u{2028}");
    assert_eq!(value["ticket"]["position"], 1_204);
    assert_eq!(value["ticket"]["roomStatus"], "OPEN");
    assert_eq!(value["words"]["etaUnknown"], "Not known yet");
    assert_eq!(value["words"]["leave"], "Leave the queue");
    assert_eq!(value["graceMs"], 45_000);
    assert_eq!(value["needsProof"], false);
    assert!(value.get("notice").is_none());
}

#[test]
fn the_page_of_an_unavailable_room_is_escaped_and_links_back() {
    let seen = unavailable("\"><script>&", Lang::Ko, true);
    assert_eq!(seen.matches("<script").count(), 1, "{seen}");
    assert!(
        seen.contains("href=\"/rooms/%22%3E%3Cscript%3E%26?lang=ko\""),
        "{seen}"
    );
    assert!(seen.contains(Lang::Ko.words().unavailable) && seen.contains("<html lang=\"ko\">"));
}

#[test]
fn a_link_never_runs_a_script() {
    for address in [
        "javascript:alert(1)",
        "data:text/html,x",
        "//elsewhere.example",
        "/\\elsewhere",
        "",
    ] {
        let page = page(Lang::En, Some(granted(Some(address))), |_| {});
        assert!(!content(&page).contains("button primary"), "{address}");
        assert!(content(&page).contains("v1.abc&lt;def&gt;"), "the pass instead");
    }
    for address in ["https://shop.example/?pass=a&b=c", "HTTP://shop.example", "/shop"] {
        let page = page(Lang::En, Some(granted(Some(address))), |_| {});
        assert!(
            content(&page).contains(&format!("href=\"{}\"", escaped(address))),
            "{address}"
        );
    }
}

#[test]
fn the_language_is_the_requested_or_preferred_one() {
    for (requested, accept, lang, chosen) in [
        (None, None, Lang::En, false),
        (None, Some("ko-KR,ko;q=0.9,en-US;q=0.8"), Lang::Ko, false),
        (None, Some("en;q=0.4, ko;q=0.7"), Lang::Ko, false),
        (None, Some("de, fr;q=0.9"), Lang::En, false),
        (None, Some("de, ko;q=0.2"), Lang::Ko, false),
        (None, Some("ko;q=0, en;q=0.1"), Lang::En, false),
        (None, Some("ko;q=nonsense"), Lang::En, false),
        (Some("ko"), Some("en"), Lang::Ko, true),
        (Some("EN-gb"), Some("ko"), Lang::En, true),
        (Some("xx"), Some("ko"), Lang::Ko, false),
        (Some(""), None, Lang::En, false),
    ] {
        assert_eq!(
            Lang::choose(requested, accept),
            (lang, chosen),
            "{requested:?} {accept:?}"
        );
    }
}

#[test]
fn both_languages_have_every_text_with_the_same_placeholders() {
    let value = |lang: Lang| serde_json::to_value(lang.words()).unwrap();
    let (en, ko) = (value(Lang::En), value(Lang::Ko));
    let placeholders = |text: &str| {
        let mut all: Vec<String> = text
            .split('{')
            .skip(1)
            .filter_map(|part| part.split_once('}'))
            .map(|(name, _)| name.to_owned())
            .collect();
        all.sort();
        all
    };
    for (name, text) in en.as_object().unwrap() {
        let (text, other) = (text.as_str().unwrap(), ko[name].as_str().unwrap());
        assert!(!text.is_empty() && !other.is_empty(), "{name}");
        assert_eq!(placeholders(text), placeholders(other), "{name}");
        let hangul = other.chars().any(|letter| ('가'..='힣').contains(&letter));
        assert!(hangul || name == "people", "{name} is not Korean: {other}");
    }
}

#[test]
fn forms_and_links_keep_the_language() {
    let korean = page(Lang::Ko, Some(waiting()), |view| view.lang_chosen = true);
    assert!(korean.contains("<html lang=\"ko\">"));
    assert!(korean.contains("action=\"/rooms/concert/leave?lang=ko\""));
    assert!(korean.contains("href=\"/rooms/concert?lang=en\" lang=\"en\""));
    assert!(content(&korean).contains("내 순서") && content(&korean).contains("1,204번"));
    assert!(content(&korean).contains("약 4~6분") && content(&korean).contains("1,203명"));
    let english = page(Lang::En, Some(waiting()), |_| {});
    assert!(english.contains("action=\"/rooms/concert/leave\""));
    assert_eq!(address("a b/ü", Lang::Ko, true), "/rooms/a%20b%2F%C3%BC?lang=ko");
}

#[test]
fn texts_of_a_room_replace_the_defaults() {
    let own = OwnTexts {
        title: Some("Winter tour".to_owned()),
        next: Some("First this.\n\n  Then that. ".to_owned()),
        ..OwnTexts::default()
    };
    let page = page_of(&own, Lang::Ko, Some(waiting()), |_| {});
    assert!(page.contains("<title>Winter tour</title>") && page.contains("<h1>Winter tour</h1>"));
    assert!(page.contains("<ol><li>First this.</li><li>Then that.</li></ol>"));
    assert!(page.contains(Lang::Ko.words().intro));
}

#[test]
fn a_visitor_without_a_ticket_can_join_unless_the_room_is_over() {
    let open = page(Lang::En, None, |_| {});
    assert!(
        content(&open).contains("action=\"/rooms/concert/join\"")
            && content(&open).contains("Join the queue")
    );
    assert!(content(&open).contains("Waiting now</dt><dd>1,500"));
    let early = page(Lang::En, None, |view| {
        view.status = RoomStatus::NotOpen;
        view.opens_at = Some(Time(NOW.0 + 600_000));
    });
    assert!(content(&early).contains("takes part in a draw") && content(&early).contains("Join the queue"));
    assert!(content(&early).contains("about 10 minutes") && content(&early).contains("2026-03-01 10:10 UTC"));
    let paused = page(Lang::En, None, |view| view.status = RoomStatus::Paused);
    assert!(content(&paused).contains("chip paused") && content(&paused).contains("Join the queue"));
    for status in [RoomStatus::Closed, RoomStatus::SoldOut] {
        let over = page(Lang::En, None, |view| view.status = status);
        assert!(!content(&over).contains("Join the queue"), "{status:?}");
    }
    assert!(missing(Lang::En).contains("Waiting room not found"));
}

#[test]
fn a_room_with_a_proof_of_work_says_that_it_needs_a_script() {
    for lang in [Lang::En, Lang::Ko] {
        for ticket in [None, Some(ended(TicketEnd::Left))] {
            let seen = page(lang, ticket.clone(), |view| view.needs_proof = true);
            let (seen, words) = (content(&seen), lang.words());
            assert!(seen.contains(&escaped(words.needs_script)) && seen.contains(words.check));
            assert!(!seen.contains("/join"), "the form would be refused");
            let seen = page(lang, ticket, |_| {});
            assert!(!content(&seen).contains(&escaped(words.needs_script)));
        }
        let seen = page(lang, Some(waiting()), |view| view.needs_proof = true);
        assert!(!content(&seen).contains(&escaped(lang.words().needs_script)));
    }
}

#[test]
fn a_ticket_is_shown_with_all_its_figures() {
    let page = |ticket| page(Lang::En, Some(ticket), |_| {});
    let seen = page(waiting());
    let seen = content(&seen);
    for part in [
        "<b>1,204</b>",
        "Ahead of you</dt><dd>1,203",
        "Behind you</dt><dd>296",
        "about 4 to 6 minutes",
        "What happens next",
        "Check again</a>",
        "Leave the queue</button>",
        "at least every 45 seconds",
        "chip open",
    ] {
        assert!(seen.contains(part), "{part} is not in {seen}");
    }
    assert!(
        !seen.contains("http-equiv"),
        "the page does not reload automatically"
    );
    let mut paused = waiting();
    (paused.room_status, paused.eta) = (RoomStatus::Paused, None);
    let seen = page(paused);
    assert!(
        content(&seen).contains("Admission is paused at the moment")
            && content(&seen).contains("Not known yet")
    );
    let mut sold = waiting();
    sold.room_status = RoomStatus::SoldOut;
    let seen = page(sold);
    assert!(content(&seen).contains("Every seat is sold") && content(&seen).contains("Check again</a>"));
    assert!(
        !content(&seen).contains("1,204"),
        "the position no longer matters"
    );
    let early = Ticket {
        room_status: RoomStatus::NotOpen,
        opens_at: Some(Time(NOW.0 + 30_000)),
        ..ticket(TicketState::Early)
    };
    let seen = page(early);
    assert!(content(&seen).contains("You are in the draw") && content(&seen).contains("less than a minute"));
    let seen = page(granted(Some("https://shop.example/?pass=x")));
    assert!(content(&seen).contains("Go to the shop</a>") && content(&seen).contains("another 4 minutes"));
    assert!(content(&page(ticket(TicketState::Inside))).contains("You are inside"));
}

#[test]
fn an_ended_ticket_shows_how_it_ended_and_offers_another() {
    for (end, text) in [
        (TicketEnd::Completed, "All done"),
        (TicketEnd::Left, "You have left the queue"),
        (TicketEnd::Lost, "Your place is gone"),
        (TicketEnd::NoShow, "Your turn has passed"),
        (TicketEnd::Expired, "Your time inside is over"),
    ] {
        let seen = page(Lang::En, Some(ended(end)), |_| {});
        assert!(content(&seen).contains(text), "{text}");
        assert!(content(&seen).contains("name=\"again\" value=\"1\""));
        let mut over = ended(end);
        over.room_status = RoomStatus::Closed;
        let seen = page(Lang::En, Some(over), |_| {});
        assert!(!content(&seen).contains("<form"), "a closed room offers no form");
    }
}

#[test]
fn a_failed_form_shows_a_notice() {
    for notice in [
        Notice::Full,
        Notice::TooMany,
        Notice::Unavailable,
        Notice::NeedsScript,
        Notice::Refused,
    ] {
        for lang in [Lang::En, Lang::Ko] {
            let seen = page(lang, None, |view| view.notice = Some(notice));
            assert!(content(&seen).contains("role=\"alert\""));
            assert!(content(&seen).contains(&escaped(notice.text(lang.words()))));
        }
    }
}

#[test]
fn a_distant_opening_is_counted_in_days() {
    const HOUR: u64 = 3_600_000;
    for (hours, english, korean) in [
        (5, "about 5 hours", "약 5시간"),
        (47, "more than a day", "하루 이상"),
        (48, "2 days", "2일"),
        (24_000, "1,000 days", "1,000일"),
    ] {
        assert_eq!(until_opening(Lang::En.words(), hours * HOUR), english);
        assert_eq!(until_opening(Lang::Ko.words(), hours * HOUR), korean);
    }
}

/// The live page uses the same wording: its test reads the same file.
#[test]
fn durations_are_worded_without_false_precision() {
    let cases: Vec<(u64, u64, String, String)> =
        serde_json::from_str(include_str!("../../../../../tests/browser/spans.json")).unwrap();
    assert!(cases.len() > 10);
    for (low, high, en, ko) in cases {
        assert_eq!(duration_range(Lang::En.words(), low, high), en, "{low} to {high}");
        assert_eq!(duration_range(Lang::Ko.words(), low, high), ko, "{low} to {high}");
    }
    let worded: Vec<_> = [1_000, 45_000, 90_000, 240_000, 3_599_000, 3_600_000, 10_000_000]
        .map(|ms| duration(Lang::En.words(), ms))
        .to_vec();
    let wanted = [
        "1 second",
        "45 seconds",
        "1 minute",
        "4 minutes",
        "59 minutes",
        "1 hour",
        "2 hours",
    ];
    assert_eq!(worded, wanted);
    assert_eq!(
        [0, 999, 1_000, 1_234_567].map(count),
        ["0", "999", "1,000", "1,234,567"]
    );
}

#[test]
fn only_hex_colours_are_accepted() {
    let colour = |text: &str| Colour::try_from(text.to_owned());
    assert_eq!(colour("#FA0").map(String::from), Ok("#ffaa00".to_owned()));
    assert_eq!(colour("#0a6489").map(String::from), Ok("#0a6489".to_owned()));
    for text in [
        "",
        "#",
        "red",
        "0a6489",
        "#12345",
        "#12345g",
        "#+12345",
        "#0a6489;}",
        "#éa",
    ] {
        assert!(colour(text).is_err(), "{text}");
    }
    let read: Colours = serde_json::from_str(r##"{"accent":"#0a6489"}"##).unwrap();
    assert!(read.accent.is_some() && read.background.is_none());
    assert!(serde_json::from_str::<Colours>(r#"{"accent":"url(x)"}"#).is_err());
}

#[test]
fn any_colours_make_a_readable_page() {
    assert_eq!(stylesheet(&Colours::default()), ":root {\n}\n");
    let named = |stylesheet: &str, name: &str| -> [Colour; 2] {
        let (_, after) = stylesheet.split_once(&format!("--{name}: light-dark(")).unwrap();
        let (pair, _) = after.split_once(')').unwrap();
        let (light, dark) = pair.split_once(", ").unwrap();
        [light, dark].map(|text| Colour::try_from(text.to_owned()).unwrap())
    };
    let panels = ["#ffffff", "#161d22"].map(|text| Colour::try_from(text.to_owned()).unwrap());
    for text in [
        "#000", "#fff", "#ffe100", "#0a6489", "#777", "#e4002b", "#00ff7f", "#1b1040",
    ] {
        let colour = Colour::try_from(text.to_owned()).unwrap();
        let css = stylesheet(&Colours {
            accent: Some(colour),
            background: Some(colour),
        });
        let (accent, background) = (named(&css, "accent"), named(&css, "background"));
        for (name, on) in [
            ("on-accent", accent),
            ("on-background", background),
            ("muted-on-background", background),
        ] {
            for (front, back) in named(&css, name).into_iter().zip(on) {
                assert!(front.contrast(back) >= 4.5, "{text}: {name} in {css}");
            }
        }
        for (accent, panel) in accent.into_iter().zip(panels) {
            assert!(accent.contrast(panel) >= 4.5, "{text}: accent in {css}");
        }
    }
}
