//! Shares the partitions of a topic among the members of a group: evenly, moving as few as possible.

#[cfg(feature = "redis")]
/// How many partitions each member may own: the first `partitions % members` get one more.
pub(crate) fn quota(place: usize, members: usize, partitions: usize) -> usize {
    partitions / members + usize::from(place < partitions % members)
}

/// The new owner of each partition. Owners that are still members keep what is within their share.
pub(crate) fn spread<M: Copy + Eq>(owners: &[Option<M>], members: &[M]) -> Vec<Option<M>> {
    if members.is_empty() {
        return vec![None; owners.len()];
    }
    let base = owners.len() / members.len();
    let mut extras = owners.len() % members.len();
    let mut held = vec![0usize; members.len()];
    let mut shared: Vec<Option<M>> = owners
        .iter()
        .map(|owner| {
            let owner = (*owner)?;
            let place = members.iter().position(|member| *member == owner)?;
            if held[place] == base && extras > 0 {
                extras -= 1;
            } else if held[place] >= base {
                return None;
            }
            held[place] += 1;
            Some(owner)
        })
        .collect();
    for owner in shared.iter_mut().filter(|owner| owner.is_none()) {
        // Choose the member with the fewest: nobody is above its share, so the shares come out even.
        let place = (0..members.len())
            .min_by_key(|place| held[*place])
            .unwrap_or_default();
        held[place] += 1;
        *owner = Some(members[place]);
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(owners: &[Option<u8>], members: &[u8]) -> Vec<usize> {
        let held = |member: &u8| owners.iter().filter(|owner| **owner == Some(*member)).count();
        members.iter().map(held).collect()
    }

    #[test]
    fn shares_differ_by_one_at_most_and_only_what_must_moves() {
        let mut owners: Vec<Option<u8>> = vec![None; 24];
        let mut members = Vec::new();
        for member in 0..10u8 {
            members.push(member);
            let before = owners.clone();
            owners = spread(&owners, &members);
            let counts = counts(&owners, &members);
            assert!(
                counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1,
                "{counts:?}"
            );
            let moved = (0..24).filter(|place| before[*place].is_some() && before[*place] != owners[*place]);
            assert!(
                moved.count() <= counts[usize::from(member)],
                "only to the new member"
            );
        }
        members.retain(|member| *member != 3);
        let before = owners.clone();
        owners = spread(&owners, &members);
        for (before, after) in before.iter().zip(&owners) {
            assert!(
                before == after || *before == Some(3),
                "only what the leaver had moves"
            );
        }
    }

    #[test]
    fn quotas_add_up() {
        for members in 1..40 {
            let all: usize = (0..members).map(|place| quota(place, members, 24)).sum();
            assert_eq!(all, 24);
        }
    }

    #[test]
    fn without_members_nobody_owns_anything() {
        assert_eq!(spread(&[Some(1u8), None], &[]), [None, None]);
    }
}
