//! A room's own colours as a stylesheet, because the content security policy allows no style inside the page.
//!
//! Operators choose two colours, and this module derives readable ones for dark mode, buttons and links. So any pair gives a
//! page with the contrast that WCAG AA requires.

use serde::{Deserialize, Serialize};

/// The panel colours of `web/room/room.css`, light and dark. The accent has to be readable on them.
const PANELS: [Colour; 2] = [Colour([0xff, 0xff, 0xff]), Colour([0x16, 0x1d, 0x22])];
const WHITE: Colour = Colour([0xff, 0xff, 0xff]);
const INK: Colour = Colour([0x10, 0x18, 0x1e]);
const BLACK: Colour = Colour([0, 0, 0]);
const NIGHT: Colour = Colour([0x0d, 0x12, 0x15]);
/// WCAG AA for text.
const READABLE: f64 = 4.5;

/// `#rrggbb` or `#rgb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Colour([u8; 3]);

/// A room's own colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Colours {
    pub accent: Option<Colour>,
    pub background: Option<Colour>,
}

impl TryFrom<String> for Colour {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a colour; it must be like #0a6489");
        let digits = text.strip_prefix('#').ok_or_else(wrong)?;
        let digits = match digits.len() {
            3 => digits.chars().flat_map(|digit| [digit, digit]).collect(),
            _ => digits.to_owned(),
        };
        if digits.len() != 6 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let all = u32::from_str_radix(&digits, 16).map_err(|_| wrong())?;
        let [_, red, green, blue] = all.to_be_bytes();
        Ok(Self([red, green, blue]))
    }
}

impl From<Colour> for String {
    fn from(Colour([red, green, blue]): Colour) -> Self {
        format!("#{red:02x}{green:02x}{blue:02x}")
    }
}

impl Colour {
    /// The relative luminance by WCAG, from 0 to 1.
    fn luminance(self) -> f64 {
        let part = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        let Self([red, green, blue]) = self;
        0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue)
    }

    pub(crate) fn contrast(self, other: Self) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// Blends `share` of this colour with the rest of the other.
    fn blend(self, other: Self, share: f64) -> Self {
        let mut all = self.0;
        for (mine, its) in all.iter_mut().zip(other.0) {
            *mine = (f64::from(*mine) * share + f64::from(its) * (1.0 - share)).round() as u8;
        }
        Self(all)
    }

    /// The nearest colour, on the way to white or ink, that is readable on `background`.
    fn readable_on(self, background: Self) -> Self {
        let text = background.text_on_it();
        (0..=20)
            .map(|step| self.blend(text, 1.0 - f64::from(step) / 20.0))
            .find(|colour| colour.contrast(background) >= READABLE)
            .unwrap_or(text)
    }

    /// White or ink, whichever has more contrast; black on the few greys where neither has enough.
    fn text_on_it(self) -> Self {
        let clearer = |a: Self, b: Self| {
            if self.contrast(a) >= self.contrast(b) {
                a
            } else {
                b
            }
        };
        let best = clearer(WHITE, INK);
        if self.contrast(best) >= READABLE {
            best
        } else {
            clearer(WHITE, BLACK)
        }
    }
}

fn pair(name: &str, [light, dark]: [Colour; 2]) -> String {
    let (light, dark) = (String::from(light), String::from(dark));
    format!("  --{name}: light-dark({light}, {dark});\n")
}

/// The stylesheet of a room, which overrides that of all rooms.
pub(crate) fn stylesheet(colours: &Colours) -> String {
    let mut all = String::from(":root {\n");
    if let Some(accent) = colours.accent {
        let accents = PANELS.map(|panel| accent.readable_on(panel));
        all += &pair("accent", accents);
        all += &pair("on-accent", accents.map(Colour::text_on_it));
    }
    if let Some(background) = colours.background {
        // A light colour becomes the background of light mode, a dark one that of dark mode. The other mode gets a tint of it.
        let backgrounds = if background.luminance() > 0.18 {
            [background, background.blend(NIGHT, 0.05)]
        } else {
            [background.blend(WHITE, 0.12), background]
        };
        all += &pair("background", backgrounds);
        all += &pair("on-background", backgrounds.map(Colour::text_on_it));
        all += &pair(
            "muted-on-background",
            backgrounds.map(|background| {
                background
                    .text_on_it()
                    .blend(background, 0.72)
                    .readable_on(background)
            }),
        );
    }
    all += "}\n";
    all
}
