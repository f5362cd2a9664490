//! The records: characters of a game, as JSON text made from key and revision alone.
//!
//! A document is a small head that belongs to one key, and sections that several keys share: building 300 KB for each
//! call would cost the server more than answering.

use std::fmt::Write;

use tidegate_core::rng::Rng;

/// The fields that an application would keep: about 17 KB of the default 300 KB.
pub const CORE_FIELDS: &[&str] = &[
    "ocid",
    "character_name",
    "world_name",
    "character_class",
    "character_gender",
    "character_level",
    "character_exp",
    "character_exp_rate",
    "character_guild_name",
    "combat_power",
    "revision",
    "last_login",
    "final_stat[].stat_name",
    "final_stat[].stat_value",
    "item_equipment[].item_equipment_part",
    "item_equipment[].item_name",
    "item_equipment[].item_base_option",
    "item_equipment[].item_total_option",
    "item_equipment[].potential_option_grade",
    "item_equipment[].potential_option",
    "item_equipment[].starforce",
    "symbol[].symbol_name",
    "symbol[].symbol_level",
];

const WORLDS: &[&str] = &[
    "스카니아",
    "베라",
    "루나",
    "제니스",
    "크로아",
    "유니온",
    "엘리시움",
    "이노시스",
];
const CLASSES: &[&str] = &[
    "히어로",
    "팔라딘",
    "비숍",
    "보우마스터",
    "나이트로드",
    "섀도어",
    "바이퍼",
    "은월",
];
const PARTS: &[&str] = &[
    "모자",
    "상의",
    "하의",
    "신발",
    "장갑",
    "망토",
    "무기",
    "보조무기",
    "얼굴장식",
    "눈장식",
    "귀고리",
    "반지1",
    "반지2",
    "반지3",
    "반지4",
    "펜던트",
    "펜던트2",
    "벨트",
    "어깨장식",
    "훈장",
    "뱃지",
    "엠블렘",
    "포켓 아이템",
    "기계 심장",
];
const ADJECTIVES: &[&str] = &[
    "앱솔랩스",
    "아케인셰이드",
    "에테르넬",
    "몽환의",
    "거대한",
    "고통의",
    "창세의",
    "여명의",
];
const STATS: &[&str] = &[
    "STR",
    "DEX",
    "INT",
    "LUK",
    "HP",
    "MP",
    "공격력",
    "마력",
    "크리티컬 확률",
    "크리티컬 데미지",
    "보스 몬스터 데미지",
    "방어율 무시",
    "상태이상 내성",
    "스탠스",
    "방어력",
    "이동속도",
    "점프력",
    "스타포스",
    "아케인포스",
    "어센틱포스",
    "아이템 드롭률",
    "메소 획득량",
    "버프 지속시간",
    "공격 속도",
    "재사용 대기시간 감소",
    "전투력",
];
const GRADES: &[&str] = &["레어", "에픽", "유니크", "레전드리"];
const SYLLABLES: &[&str] = &[
    "가", "나", "다", "람", "쥐", "별", "달", "해", "용", "검", "빛", "솔", "온", "휘", "츄", "뿅",
];
/// Text of the fields that no application keeps.
const PROSE: &[&str] = &[
    "적을 공격하여 일정 시간 동안 지속 피해를 입힌다.",
    "파티원 전체의 공격력을 증가시키는 버프를 사용한다.",
    "\\u0022전설\\u0022의 힘을 빌려 재사용 대기시간을 줄인다.",
    "Icon, description and effect of every level are part of the answer.",
    "최대 HP의 \\n일부를 회복하고 상태 이상을 해제한다.",
    "MP 120 소비, 최대 8명의 적을 450% 데미지로 6번 공격",
];

/// Bytes of everything but the prose, about; below it the equipment shrinks.
const CORE_BYTES: usize = 24_000;

/// The fields of one key, without braces. `moment` is the provider's clock and differs in every answer.
pub(crate) fn head(key: &str, number: u64, revision: u64, moment: &str, order: &mut Rng) -> String {
    let mut rng = Rng::new(number);
    let name: String = (0..2 + rng.below(4)).map(|_| *rng.pick(SYLLABLES)).collect();
    let world = *rng.pick(WORLDS);
    let class = *rng.pick(CLASSES);
    let level = 200 + rng.below(80) + revision % 20;
    let exp = rng.below(1 << 40) + revision * 7_919;
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut fields = vec![
        format!(r#""date":"{moment}""#),
        format!(r#""ocid":{}"#, quoted(key)),
        format!(r#""character_name":"{name}""#),
        format!(r#""world_name":"{world}""#),
        format!(
            r#""character_gender":"{}""#,
            if number & 1 == 0 { "여" } else { "남" }
        ),
        format!(r#""character_class":"{class}""#),
        format!(r#""character_level":{level}"#),
        format!(r#""character_exp":{exp}"#),
        format!(r#""character_exp_rate":"{}.{:03}""#, exp % 100, exp % 1_000),
        format!(
            r#""character_guild_name":{}"#,
            if number.is_multiple_of(5) {
                "null"
            } else {
                r#""바다""#
            }
        ),
        format!(r#""combat_power":{}"#, exp / 3 + level),
        format!(r#""revision":{revision}"#),
        format!(
            r#""last_login":"2026-{:02}-{:02}T{:02}:{:02}+09:00""#,
            1 + number % 10,
            1 + number % 28,
            number % 24,
            revision % 60
        ),
        format!(r#""request_cost_us":{}"#, order.below(100_000)),
    ];
    order.shuffle(&mut fields);
    fields.join(",")
}

/// A section: its name and its text as a field, with a comma before it.
pub(crate) fn sections(body: u64, payload_bytes: usize, order: &mut Rng) -> Vec<(&'static str, String)> {
    let mut rng = Rng::new(body ^ 0x5EED);
    let scale = (payload_bytes as f64 / CORE_BYTES as f64).min(1.0);
    let some = |all: usize| ((all as f64 * scale) as usize).max(1);
    let list = |name: &str, items: Vec<String>| format!(",\"{name}\":[{}]", items.join(","));
    let mut all = vec![
        (
            "final_stat",
            list(
                "final_stat",
                (0..some(STATS.len())).map(|n| stat(n, &mut rng, order)).collect(),
            ),
        ),
        (
            "item_equipment",
            list(
                "item_equipment",
                (0..some(PARTS.len())).map(|n| item(n, &mut rng, order)).collect(),
            ),
        ),
        (
            "symbol",
            list(
                "symbol",
                (0..some(12)).map(|n| symbol(n, &mut rng, order)).collect(),
            ),
        ),
    ];
    let made: usize = all.iter().map(|(_, text)| text.len()).sum();
    let rest = payload_bytes.saturating_sub(made + 600);
    for (name, share) in [
        ("skill", 0.45),
        ("cash_item_equipment", 0.2),
        ("link_skill", 0.15),
        ("union_raider", 0.2),
    ] {
        let want = (rest as f64 * share) as usize;
        let mut text = format!(",\"{name}\":[");
        while text.len() < want {
            text.push_str(&filler(&mut rng, order));
            text.push(',');
        }
        text.push_str("null]");
        all.push((name, text));
    }
    all
}

fn object(fields: &mut [String], order: &mut Rng) -> String {
    order.shuffle(fields);
    format!("{{{}}}", fields.join(","))
}

fn stat(n: usize, rng: &mut Rng, order: &mut Rng) -> String {
    let value = rng.below(1_000_000);
    object(
        &mut [
            format!(r#""stat_name":"{}""#, STATS[n]),
            format!(r#""stat_value":"{value}""#),
        ],
        order,
    )
}

fn symbol(n: usize, rng: &mut Rng, order: &mut Rng) -> String {
    let mut fields = [
        format!(r#""symbol_name":"아케인심볼 : {}""#, rng.pick(WORLDS)),
        format!(r#""symbol_level":{}"#, 1 + rng.below(20)),
        format!(
            r#""symbol_icon":"https://static.example/symbol/{n}/{:016x}.png""#,
            rng.next_u64()
        ),
        format!(r#""symbol_description":"{}""#, rng.pick(PROSE)),
    ];
    object(&mut fields, order)
}

fn item(n: usize, rng: &mut Rng, order: &mut Rng) -> String {
    let total = options(rng, order, 12);
    let (base, etc) = (options(rng, order, 12), options(rng, order, 8));
    let potential: Vec<String> = (0..3)
        .map(|_| format!(r#""{} : +{}%""#, rng.pick(STATS), 3 * (1 + rng.below(4))))
        .collect();
    let mut fields = [
        format!(r#""item_equipment_part":"{}""#, PARTS[n]),
        format!(r#""item_name":"{} {}""#, rng.pick(ADJECTIVES), PARTS[n]),
        format!(
            r#""item_icon":"https://static.example/item/{:032x}.png""#,
            u128::from(rng.next_u64()) << 40
        ),
        format!(r#""item_description":"{}""#, rng.pick(PROSE)),
        format!(r#""item_total_option":{total}"#),
        format!(r#""item_base_option":{base}"#),
        format!(r#""item_etc_option":{etc}"#),
        format!(r#""potential_option_grade":"{}""#, rng.pick(GRADES)),
        format!(r#""potential_option":[{}]"#, potential.join(",")),
        format!(r#""starforce":{}"#, rng.below(26)),
        format!(r#""scroll_upgrade":"{}""#, rng.below(13)),
        r#""date_expire":null"#.to_owned(),
    ];
    object(&mut fields, order)
}

fn options(rng: &mut Rng, order: &mut Rng, how_many: usize) -> String {
    const NAMES: [&str; 12] = [
        "str",
        "dex",
        "int",
        "luk",
        "max_hp",
        "max_mp",
        "attack_power",
        "magic_power",
        "armor",
        "speed",
        "jump",
        "boss_damage",
    ];
    let mut fields: Vec<String> = NAMES
        .iter()
        .take(how_many)
        .map(|name| format!(r#""{name}":"{}""#, rng.below(300)))
        .collect();
    object(&mut fields, order)
}

fn filler(rng: &mut Rng, order: &mut Rng) -> String {
    let mut effect = String::new();
    for _ in 0..1 + rng.below(3) {
        let _ = write!(effect, "{} ", rng.pick(PROSE));
    }
    let mut fields = [
        format!(r#""skill_name":"{} {}""#, rng.pick(ADJECTIVES), rng.pick(CLASSES)),
        format!(r#""skill_description":"{}""#, rng.pick(PROSE)),
        format!(r#""skill_level":{}"#, rng.below(30)),
        format!(r#""skill_effect":"{effect}""#),
        format!(
            r#""skill_icon":"https://static.example/skill/{:016x}{:016x}.png""#,
            rng.next_u64(),
            rng.next_u64()
        ),
        format!(
            r#""rates":[{},{}.5,{}e-3,true,null]"#,
            rng.below(100),
            rng.below(100),
            rng.below(100)
        ),
        format!(r#""option":{}"#, options(rng, order, 6)),
    ];
    object(&mut fields, order)
}

/// A whole answer as text, to measure the cost of reading one.
pub fn sample(key: &str, payload_bytes: usize) -> String {
    shuffled(key, 0, payload_bytes, 1)
}

/// The document in the order that `seed` gives.
fn shuffled(key: &str, revision: u64, payload_bytes: usize, seed: u64) -> String {
    let mut order = Rng::new(seed);
    let number = crate::text_number::number_of(key);
    let mut parts = sections(number % 8, payload_bytes, &mut order);
    order.shuffle(&mut parts);
    let tail: String = parts.into_iter().map(|(_, text)| text).collect();
    let head = head(key, number, revision, "2026-03-01T09:30:00Z", &mut order);
    format!("{{{head}{tail}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_valid_and_as_long_as_configured() {
        for (payload, from, to) in [
            (300_000, 290_000, 310_000),
            (30_000, 24_000, 36_000),
            (1_000, 500, 6_000),
        ] {
            let text = shuffled("가나\"다", 3, payload, 1);
            assert!((from..to).contains(&text.len()), "{payload}: {}", text.len());
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read["ocid"], "가나\"다");
            assert_eq!(read["revision"], 3);
            assert!(read["item_equipment"][0]["item_total_option"]["str"].is_string());
        }
    }

    #[test]
    fn order_differs_and_content_does_not() {
        let (a, b) = (shuffled("a", 0, 20_000, 1), shuffled("a", 0, 20_000, 2));
        assert_ne!(a, b);
        let read = |text: &str| {
            let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
            value.as_object_mut().unwrap().remove("request_cost_us");
            value
        };
        assert_eq!(read(&a), read(&b));
        assert_ne!(read(&a), read(&shuffled("a", 1, 20_000, 1)));
        assert_ne!(read(&a), read(&shuffled("b", 0, 20_000, 1)));
    }
}
