//! Renders the visitor page of a waiting room as HTML. It is complete without scripts; those of `web/room/` update it live.
//!
//! The functions are pure: callers pass everything that the page shows. The page escapes all text. The scripts get their data
//! as one block of JSON, which a browser does not run and the content security policy allows.

mod colours;
pub(crate) mod route;
#[cfg(test)]
mod tests;
mod words;

use std::fmt::Write as _;

use serde::Serialize;
use tidegate_api::{RoomStatus, Ticket, TicketEnd, TicketState, Time};

pub(crate) use self::colours::stylesheet;
pub use self::colours::{Colour, Colours};
pub use self::words::OwnTexts;
pub(crate) use self::words::{Lang, Texts};
use self::words::{Words, count, duration, duration_range, fill, until_opening};

/// Everything that the page shows.
#[derive(Debug, Clone)]
pub(crate) struct PageView<'a> {
    pub(crate) room: &'a str,
    pub(crate) texts: &'a Texts,
    pub(crate) lang: Lang,
    /// The visitor chose this language, so forms and links keep it.
    pub(crate) lang_chosen: bool,
    /// Whether the room has colours of its own, at [`colours_address`].
    pub(crate) coloured: bool,
    /// Whether joining needs a proof of work, which only a script can solve.
    pub(crate) needs_proof: bool,
    /// The room's status for a visitor without a ticket.
    pub(crate) status: RoomStatus,
    pub(crate) opens_at: Option<Time>,
    pub(crate) waiting: u64,
    pub(crate) at: Time,
    /// How long an absent visitor keeps the ticket, in milliseconds.
    pub(crate) grace_ms: u64,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) notice: Option<Notice>,
}

/// Why the last form failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Notice {
    /// The waiting room is full.
    Full,
    TooMany,
    /// The store is unavailable.
    Unavailable,
    /// The room needs a proof of work, which a form cannot solve.
    NeedsScript,
    /// Any other reason.
    Refused,
}

impl Notice {
    fn text(self, words: &Words) -> &'static str {
        match self {
            Self::Full => words.full_text,
            Self::TooMany => words.too_many,
            Self::Unavailable => words.unavailable,
            Self::NeedsScript => words.needs_script,
            Self::Refused => words.refused,
        }
    }
}

/// The path of the page, which forms redirect to.
pub(crate) fn address(room: &str, lang: Lang, chosen: bool) -> String {
    at(room, "", lang, chosen)
}

/// The path of the room's own colours.
pub(crate) fn colours_address(room: &str) -> String {
    format!("/rooms/{}/colours.css", encoded(room))
}

fn at(room: &str, below: &str, lang: Lang, chosen: bool) -> String {
    let query = if chosen {
        format!("?lang={}", lang.code())
    } else {
        String::new()
    };
    format!("/rooms/{}{below}{query}", encoded(room))
}

fn encoded(name: &str) -> String {
    let mut all = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            all.push(char::from(byte));
        } else {
            let _ = write!(all, "%{byte:02X}");
        }
    }
    all
}

fn escaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            '\'' => all.push_str("&#39;"),
            _ => all.push(character),
        }
    }
    all
}

/// Returns a URL that is safe in a link: HTTP or a path, no script and no data.
fn safe(address: &str) -> Option<&str> {
    let lower = address.to_ascii_lowercase();
    let known = lower.starts_with("https://") || lower.starts_with("http://");
    let own = lower.starts_with('/') && !lower.starts_with("//") && !lower.starts_with("/\\");
    (known || own).then_some(address)
}

/// The page data: what the server embeds for the scripts, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageData<'a> {
    room: &'a str,
    lang: &'static str,
    status: RoomStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    opens_at: Option<Time>,
    waiting: u64,
    at: Time,
    grace_ms: u64,
    needs_proof: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<&'a Ticket>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<Notice>,
    texts: &'a Texts,
    words: &'a Words,
}

fn page_data(view: &PageView) -> String {
    let data = PageData {
        room: view.room,
        lang: view.lang.code(),
        status: view.status,
        opens_at: view.opens_at,
        waiting: view.waiting,
        at: view.at,
        grace_ms: view.grace_ms,
        needs_proof: view.needs_proof,
        ticket: view.ticket.as_ref(),
        notice: view.notice,
        texts: view.texts,
        words: view.lang.words(),
    };
    let json = serde_json::to_string(&data).unwrap_or_default();
    // The data must not end the script block or start a comment.
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Renders the page.
pub(crate) fn render(view: &PageView) -> String {
    let words = view.lang.words();
    let colours = if view.coloured {
        format!(
            "\n<link rel=\"stylesheet\" href=\"{}\">",
            escaped(&colours_address(view.room))
        )
    } else {
        String::new()
    };
    let notice = view.notice.map_or_else(String::new, |notice| {
        format!(
            "<p class=\"notice\" role=\"alert\">{}</p>\n",
            escaped(notice.text(words))
        )
    });
    let switch = switch(view.room, view.lang);
    let head = format!(
        "{colours}\n<script type=\"module\" src=\"/assets/room/room.js\"></script>\n\
         <script type=\"application/json\" id=\"page-data\">{}</script>",
        page_data(view)
    );
    let main = format!(
        "<div class=\"head\"><h1>{}</h1>\n<p class=\"intro\">{}</p></div>\n{notice}<div id=\"content\" class=\"content\">{}</div>",
        escaped(&view.texts.title),
        escaped(&view.texts.intro),
        Content { view, words }.html(),
    );
    frame(view.lang, &view.texts.title, &head, &switch, &main)
}

/// The link to the other language.
fn switch(room: &str, lang: Lang) -> String {
    let other = lang.other();
    format!(
        "<nav aria-label=\"{}\"><a class=\"quiet\" href=\"{}\" lang=\"{code}\" hreflang=\"{code}\">{}</a></nav>",
        escaped(lang.words().language),
        escaped(&at(room, "", other, true)),
        escaped(other.words().language_name),
        code = other.code(),
    )
}

/// Renders the page of a room that is unavailable.
pub(crate) fn unavailable(room: &str, lang: Lang, chosen: bool) -> String {
    let words = lang.words();
    let main = format!(
        "<div class=\"content\"><section class=\"card message\"><h1 class=\"lead\">{}</h1><p>{}</p>\
         <div class=\"actions\"><a class=\"button\" href=\"{}\">{}</a></div></section></div>",
        escaped(words.unavailable_heading),
        escaped(words.unavailable),
        escaped(&address(room, lang, chosen)),
        escaped(words.check),
    );
    let script = "\n<script type=\"module\" src=\"/assets/room/unavailable.js\"></script>";
    frame(
        lang,
        words.unavailable_heading,
        script,
        &switch(room, lang),
        &main,
    )
}

/// Renders the page of a room that does not exist.
pub(crate) fn missing(lang: Lang) -> String {
    let words = lang.words();
    let main = format!(
        "<div class=\"head\"><h1>{}</h1>\n<p class=\"intro\">{}</p></div>",
        escaped(words.missing_heading),
        escaped(words.missing_text)
    );
    frame(lang, words.missing_heading, "", "", &main)
}

fn frame(lang: Lang, title: &str, head: &str, nav: &str, main: &str) -> String {
    let words = lang.words();
    format!(
        "<!doctype html>\n<html lang=\"{lang}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"robots\" content=\"noindex\">\n\
         <title>{title}</title>\n<link rel=\"icon\" href=\"/assets/icon.svg\" type=\"image/svg+xml\">\n\
         <link rel=\"stylesheet\" href=\"/assets/room/room.css\">{head}\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">{skip}</a>\n<header class=\"top\"><img src=\"/assets/icon.svg\" alt=\"\" width=\"28\" height=\"28\">{nav}</header>\n\
         <main id=\"main\" tabindex=\"-1\">\n{main}\n</main>\n\
         <p id=\"announcer\" class=\"visually-hidden\" role=\"status\" aria-live=\"polite\"></p>\n</body>\n</html>\n",
        lang = lang.code(),
        title = escaped(title),
        skip = escaped(words.skip),
    )
}

/// The part of the page that changes: the visitor's state and actions.
struct Content<'a> {
    view: &'a PageView<'a>,
    words: &'static Words,
}

impl Content<'_> {
    fn html(&self) -> String {
        match &self.view.ticket {
            None => self.without_ticket(),
            Some(ticket) => match ticket.state {
                TicketState::Early => self.early(ticket),
                TicketState::Waiting => self.waiting(ticket),
                TicketState::Granted => self.granted(ticket),
                TicketState::Inside => self.inside(),
                TicketState::Ended => self.ended(ticket),
            },
        }
    }

    fn form(&self, below: &str, button: &str, class: &str, again: bool) -> String {
        let field = if again {
            "<input type=\"hidden\" name=\"again\" value=\"1\">"
        } else {
            ""
        };
        format!(
            "<form method=\"post\" action=\"{}\">{field}<button class=\"{class}\">{}</button></form>",
            escaped(&at(self.view.room, below, self.view.lang, self.view.lang_chosen)),
            escaped(button)
        )
    }

    /// The form to join, or the notice that joining needs a script.
    fn join(&self, button: &str, again: bool) -> String {
        if self.view.needs_proof {
            format!(
                "<p class=\"hint no-script\">{}</p>{}",
                escaped(self.words.needs_script),
                self.check()
            )
        } else {
            self.form("/join", button, "primary", again)
        }
    }

    fn check(&self) -> String {
        format!(
            "<a class=\"button\" href=\"{}\">{}</a>",
            escaped(&address(self.view.room, self.view.lang, self.view.lang_chosen)),
            escaped(self.words.check)
        )
    }

    fn chip(&self, status: RoomStatus) -> String {
        let (class, text) = match status {
            RoomStatus::NotOpen => ("not-open", self.words.status_not_open),
            RoomStatus::Open => ("open", self.words.status_open),
            RoomStatus::Paused => ("paused", self.words.status_paused),
            RoomStatus::SoldOut => ("sold-out", self.words.status_sold_out),
            RoomStatus::Closed => ("closed", self.words.status_closed),
        };
        format!(
            "<p class=\"chip {class}\"><span class=\"visually-hidden\">{}: </span>{}</p>",
            escaped(self.words.status),
            escaped(text)
        )
    }

    fn figure(name: &str, value: &str) -> String {
        format!("<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value))
    }

    fn people(&self, value: u64) -> String {
        fill(self.words.people, &[("n", &count(value))])
    }

    fn steps(&self) -> String {
        let steps: String = self
            .view
            .texts
            .next
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| format!("<li>{}</li>", escaped(line.trim())))
            .collect();
        format!(
            "<section class=\"next\"><h2>{}</h2><ol>{steps}</ol></section>",
            escaped(self.words.next_heading)
        )
    }

    /// The notice that without a script the visitor has to reload the page in time.
    fn reload_notice(&self) -> String {
        let span = duration(self.words, self.view.grace_ms);
        format!(
            "<p class=\"fine\">{}</p>",
            escaped(&fill(self.words.no_script, &[("span", &span)]))
        )
    }

    /// A heading, a text, and actions.
    fn message(&self, class: &str, chip: &str, heading: &str, text: &str, actions: &str) -> String {
        format!(
            "<section class=\"card message {class}\">{chip}<h2 class=\"lead\">{}</h2><p>{}</p><div class=\"actions\">{actions}</div></section>",
            escaped(heading),
            escaped(text)
        )
    }

    /// The message of a room that admits nobody any more, for visitors with and without a ticket.
    fn closed_or_sold_out(&self, status: RoomStatus) -> Option<String> {
        let words = self.words;
        let (heading, text) = match status {
            RoomStatus::Closed => (words.closed_heading, self.view.texts.closed.as_str()),
            RoomStatus::SoldOut => (words.sold_out_heading, words.sold_out_text),
            RoomStatus::NotOpen | RoomStatus::Open | RoomStatus::Paused => return None,
        };
        Some(self.message("ended", &self.chip(status), heading, text, &self.check()))
    }

    fn without_ticket(&self) -> String {
        let (view, words) = (self.view, self.words);
        if let Some(message) = self.closed_or_sold_out(view.status) {
            return message;
        }
        let chip = self.chip(view.status);
        let early = view.status == RoomStatus::NotOpen;
        let (heading, text, who) = if early {
            (words.join_early, words.early_text, words.already_here)
        } else if view.status == RoomStatus::Paused {
            (words.join_heading, words.paused_join, words.waiting)
        } else {
            (words.join_heading, "", words.waiting)
        };
        let text = if text.is_empty() {
            String::new()
        } else {
            format!("<p>{}</p>", escaped(text))
        };
        format!(
            "<section class=\"card\">{chip}<h2 class=\"lead\">{}</h2>{}{text}<dl class=\"figures\">{}</dl>\
             <div class=\"actions\">{}</div></section>{}",
            escaped(heading),
            self.opening(view.opens_at.filter(|_| early), view.at),
            Self::figure(who, &self.people(view.waiting)),
            self.join(words.join, false),
            self.steps()
        )
    }

    fn opening(&self, opens_at: Option<Time>, now: Time) -> String {
        let Some(opens) = opens_at else {
            return String::new();
        };
        let left = opens.0.saturating_sub(now.0);
        // To the minute, in UTC: a page without a script does not know the visitor's time zone.
        let exact = opens.to_string();
        let plain = exact.get(..16).unwrap_or(&exact).replace('T', " ");
        format!(
            "<p class=\"opening\"><span class=\"label\">{}</span> <b class=\"time\">{}</b> <span class=\"fine\">\
             <time datetime=\"{exact}\">{}</time></span></p>",
            escaped(self.words.opens_in),
            escaped(&until_opening(self.words, left)),
            escaped(&fill(self.words.opens_at, &[("time", &format!("{plain} UTC"))])),
        )
    }

    fn early(&self, ticket: &Ticket) -> String {
        let words = self.words;
        if let Some(message) = self.closed_or_sold_out(ticket.room_status) {
            return message;
        }
        format!(
            "<section class=\"card\">{}<h2 class=\"lead\">{}</h2>{}<p>{}</p><dl class=\"figures\">{}</dl>\
             <div class=\"actions\">{}{}</div>{}</section>{}",
            self.chip(ticket.room_status),
            escaped(words.early_heading),
            self.opening(ticket.opens_at, ticket.at),
            escaped(words.early_text),
            Self::figure(words.already_here, &self.people(ticket.waiting)),
            self.check(),
            self.form("/leave", words.leave, "quiet", false),
            self.reload_notice(),
            self.steps()
        )
    }

    fn waiting(&self, ticket: &Ticket) -> String {
        let words = self.words;
        if let Some(message) = self.closed_or_sold_out(ticket.room_status) {
            return message;
        }
        let paused = (ticket.room_status == RoomStatus::Paused).then_some(words.paused_text);
        let eta = ticket.eta.map_or_else(
            || words.eta_unknown.to_owned(),
            |eta| duration_range(words, eta.low_ms, eta.high_ms),
        );
        let mut figures = Self::figure(words.eta, &eta);
        for (name, value) in [(words.ahead, ticket.ahead), (words.behind, ticket.behind)] {
            if let Some(value) = value {
                figures += &Self::figure(name, &self.people(value));
            }
        }
        let position = ticket.position.map_or_else(
            || "–".to_owned(),
            |position| fill(words.position_value, &[("n", &count(position))]),
        );
        format!(
            "<section class=\"card\">{}<h2 class=\"position\"><span class=\"label\">{}</span> <b>{}</b></h2>{}\
             <dl class=\"figures\">{figures}</dl><div class=\"actions\">{}{}</div>{}</section>{}",
            self.chip(ticket.room_status),
            escaped(words.position),
            escaped(&position),
            paused.map_or_else(String::new, |text| format!(
                "<p class=\"hint\">{}</p>",
                escaped(text)
            )),
            self.check(),
            self.form("/leave", words.leave, "quiet", false),
            self.reload_notice(),
            self.steps()
        )
    }

    fn granted(&self, ticket: &Ticket) -> String {
        let words = self.words;
        let mut actions = String::new();
        let mut below = String::new();
        if let Some(pass) = &ticket.pass {
            if let Some(go_to) = pass.go_to.as_deref().and_then(safe) {
                let _ = write!(
                    actions,
                    "<a class=\"button primary\" href=\"{}\">{}</a>",
                    escaped(go_to),
                    escaped(words.go)
                );
            } else {
                let _ = write!(
                    below,
                    "<p class=\"pass\"><span class=\"label\">{}</span> <code>{}</code></p>",
                    escaped(words.pass),
                    escaped(&pass.token)
                );
            }
            let left = duration(words, pass.expires_at.0.saturating_sub(ticket.at.0));
            let _ = write!(
                below,
                "<p class=\"fine\">{}</p>",
                escaped(&fill(words.pass_for, &[("span", &left)]))
            );
        }
        actions += &self.form("/leave", words.give_up, "quiet", false);
        format!(
            "<section class=\"card message turn\"><h2 class=\"lead\">{}</h2><p>{}</p>{below}<div class=\"actions\">{actions}</div></section>",
            escaped(words.granted_heading),
            escaped(&self.view.texts.granted)
        )
    }

    fn inside(&self) -> String {
        let words = self.words;
        self.message("turn", "", words.inside_heading, words.inside_text, &self.check())
    }

    fn ended(&self, ticket: &Ticket) -> String {
        let words = self.words;
        let closed = ticket.room_status == RoomStatus::Closed;
        let (heading, text) = match ticket.end {
            Some(TicketEnd::Completed) => (words.completed_heading, words.completed_text),
            Some(TicketEnd::Left) => (words.left_heading, words.left_text),
            Some(TicketEnd::Lost) => (words.lost_heading, words.lost_text),
            Some(TicketEnd::NoShow) => (words.no_show_heading, words.no_show_text),
            Some(TicketEnd::Expired) => (words.expired_heading, words.expired_text),
            None if closed => (words.closed_heading, self.view.texts.closed.as_str()),
            None => (words.ended_heading, ""),
        };
        let actions = if closed {
            String::new()
        } else {
            self.join(words.again, true)
        };
        self.message("ended", &self.chip(ticket.room_status), heading, text, &actions)
    }
}
