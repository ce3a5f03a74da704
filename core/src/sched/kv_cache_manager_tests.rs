//! Blocks, tables, windows and shared beginnings, by example.

use super::*;
use crate::sched::request::Request;
use crate::types::SamplingParams;

/// Seven usable blocks of 16 in each group.
fn manager(windows: &[Option<usize>]) -> KvCacheManager {
    let groups = windows.iter().map(|&window| KvGroupSpec {
        layers: vec![0],
        window,
    });
    let config = SchedulerConfig {
        block_size: 16,
        num_blocks: 8,
        ..SchedulerConfig::default()
    };
    KvCacheManager::new(groups.collect(), &config)
}

#[test]
fn blocks_come_when_needed_and_not_before() {
    let mut kv = manager(&[None]);
    let id = RequestId(3);
    for (num_tokens, blocks) in [(1, 1), (16, 1), (17, 2), (20, 2), (5, 1), (48, 3)] {
        kv.take_back(id, num_tokens);
        assert!(kv.allocate_slots(id, 0..num_tokens));
        assert_eq!(kv.block_tables(id)[0].len(), blocks, "{num_tokens} tokens");
    }
    assert!(!kv.allocate_slots(id, 0..8 * 16));
    assert_eq!(kv.block_tables(id)[0].len(), 3);
    assert_eq!(kv.max_num_tokens(id, 48), 7 * 16);
    kv.check_integrity(&BTreeMap::from([(id, 0..48)])).unwrap();
    assert!(kv.check_integrity(&BTreeMap::from([(id, 0..32)])).is_err());
    kv.free(id);
    assert_eq!(kv.num_free_blocks(), 7);
}

#[test]
fn groups_have_pools_of_their_own() {
    let mut kv = manager(&[None, Some(20)]);
    let (a, b) = (RequestId(0), RequestId(1));
    assert!(kv.allocate_slots(a, 0..100));
    assert_eq!(kv.num_free_blocks(), 0);
    // The query at 60 sees the keys from 41 on: blocks 0 and 1 of the window go.
    kv.free_unseen(a, 60);
    assert_eq!(kv.num_free_blocks(), 2);
    let tables = kv.block_tables(a);
    assert!(!tables[0].contains(&NULL_BLOCK));
    assert_eq!(tables[1][..2], [NULL_BLOCK; 2]);
    assert!(!tables[1][2..].contains(&NULL_BLOCK));
    kv.check_integrity(&BTreeMap::from([(a, 60..100)])).unwrap();
    for wrong in [40..100, 80..100] {
        assert!(kv.check_integrity(&BTreeMap::from([(a, wrong)])).is_err());
    }
    assert!(!kv.allocate_slots(b, 0..1), "the other group has none left");
    assert!(kv.block_tables(b).is_empty());
    kv.free_unseen(a, 60);
    kv.free_unseen(a, 99);
    assert_eq!(kv.num_free_blocks(), 5);
    kv.free(a);
    assert_eq!(kv.num_free_blocks(), 14);
}

/// A request for `ids`, of which the first `computed` tokens are in the cache and known.
fn computed(kv: &mut KvCacheManager, id: u64, ids: Vec<u32>, computed: usize) -> Request {
    let params = SamplingParams::default();
    let mut request = Request::new(RequestId(id), ids, params, &[]);
    kv.hash_blocks(&mut request);
    if computed > 0 {
        assert!(kv.allocate_slots(request.id(), 0..computed));
        request.num_computed_tokens = computed;
        kv.cache_blocks(&mut request);
    }
    request
}

#[test]
fn a_beginning_is_found_while_any_of_its_blocks_is_there() {
    let mut kv = manager(&[None]);
    let a = computed(&mut kv, 0, (0..50).collect(), 50);
    kv.free(a.id());
    let found = |kv: &KvCacheManager, ids: Vec<u32>| {
        let params = SamplingParams::default();
        let mut request = Request::new(RequestId(9), ids, params, &[]);
        kv.hash_blocks(&mut request);
        kv.get_computed_blocks(&request).num_cached_tokens
    };
    assert_eq!(found(&kv, (0..50).collect()), 48);
    assert_eq!(found(&kv, (0..49).collect()), 48);
    assert_eq!(found(&kv, (0..48).collect()), 32, "one token is computed");
    assert_eq!(found(&kv, (0..16).collect()), 0);
    assert_eq!(found(&kv, (1..50).collect()), 0);
    let mut ids: Vec<u32> = (0..50).collect();
    ids[20] = 99;
    assert_eq!(found(&kv, ids), 16);
    // Its partial block and those never used go first, then its last full one.
    assert!(kv.allocate_slots(RequestId(1), 0..5 * 16));
    assert_eq!(found(&kv, (0..50).collect()), 32);
    assert!(kv.allocate_slots(RequestId(1), 0..6 * 16));
    assert_eq!(found(&kv, (0..50).collect()), 16);
}

#[test]
fn a_hit_reaches_as_far_as_every_group_sees() {
    let mut kv = manager(&[None, Some(20)]);
    let a = computed(&mut kv, 0, (0..112).collect(), 96);
    kv.free_unseen(a.id(), 96);
    let b = computed(&mut kv, 1, (0..112).collect(), 0);
    let found = kv.get_computed_blocks(&b);
    assert_eq!(found.num_cached_tokens, 96);
    assert_eq!(found.block_tables[1][..4], [NULL_BLOCK; 4]);
    assert_eq!(found.block_tables[1][4..], kv.block_tables(a.id())[1][4..]);
    assert_eq!(found.block_tables[0], kv.block_tables(a.id())[0]);
    kv.share(b.id(), found);
    let both = BTreeMap::from([(a.id(), 96..96), (b.id(), 96..96)]);
    kv.check_integrity(&both).unwrap();
    // The window forgets block 4, which the token at 96 would see; at 64 it sees 2 and 3.
    kv.free(b.id());
    let block = kv.block_tables(a.id())[1][4];
    kv.pools[1].evict(block);
    assert_eq!(kv.get_computed_blocks(&b).num_cached_tokens, 64);
    // Not what comes after a gap of the other group.
    let block = kv.block_tables(a.id())[0][3];
    kv.pools[0].evict(block);
    assert_eq!(kv.get_computed_blocks(&b).num_cached_tokens, 48);
    kv.evict(a.id());
    assert_eq!(kv.get_computed_blocks(&b).num_cached_tokens, 0);
    kv.free(a.id());
    assert_eq!(kv.num_free_blocks(), 14);
}

#[test]
fn blocks_that_others_hold_take_no_room() {
    let mut kv = manager(&[None]);
    let a = computed(&mut kv, 0, (0..100).collect(), 80);
    let b = computed(&mut kv, 1, (0..100).collect(), 0);
    let found = kv.get_computed_blocks(&b);
    assert_eq!(found.num_cached_tokens, 80);
    assert!(
        kv.has_room_for(100, &found),
        "two more of the two that are free"
    );
    assert!(kv.allocate_slots(RequestId(2), 0..1));
    assert!(!kv.has_room_for(100, &found));
    assert!(kv.has_room_for(96, &found));
    kv.free(RequestId(2));
    kv.free(a.id());
    assert!(kv.has_room_for(112, &found), "now they are among the free");
    assert!(kv.has_room_for(113, &found), "all there is");
}

#[test]
fn nothing_is_shared_where_that_is_switched_off() {
    let config = SchedulerConfig {
        block_size: 16,
        enable_prefix_caching: false,
        ..SchedulerConfig::default()
    };
    let mut kv = KvCacheManager::new(KvGroupSpec::full_attention(1), &config);
    let a = computed(&mut kv, 0, (0..50).collect(), 50);
    let b = computed(&mut kv, 1, (0..50).collect(), 0);
    assert_eq!(kv.get_computed_blocks(&b).num_cached_tokens, 0);
    kv.free(a.id());
    assert_eq!(kv.get_computed_blocks(&b).num_cached_tokens, 0);
}

#[test]
fn a_window_fits_where_the_whole_does_not() {
    let kv = manager(&[Some(40)]);
    assert_eq!(kv.never_fits(100_000), None);
    let nothing = ComputedBlocks {
        block_tables: vec![Vec::new()],
        num_cached_tokens: 0,
    };
    assert!(kv.has_room_for(100_000, &nothing), "alone");
    let kv = manager(&[Some(40), None]);
    assert_eq!(kv.never_fits(7 * 16), None);
    assert_eq!(kv.never_fits(7 * 16 + 1), Some((8, 7)));
    let kv = manager(&[Some(7 * 16)]);
    assert_eq!(kv.never_fits(7 * 16), None, "never longer than its window");
    assert_eq!(kv.never_fits(7 * 16 + 1), Some((8, 7)));
}

/// Shares the first 20 tokens of `from` with `to`, which then writes the next one.
fn fork(kv: &mut KvCacheManager, from: RequestId, to: RequestId) {
    let found = kv.shared_blocks(from, 20).expect("all is there");
    kv.share(to, found);
    assert!(kv.allocate_slots(to, 20..21));
}

#[test]
fn a_copy_is_never_made_of_a_copy_not_yet_made() {
    let mut kv = manager(&[None]);
    let [a, b, c] = [0, 1, 2].map(RequestId);
    assert!(kv.allocate_slots(a, 0..20));
    fork(&mut kv, a, b);
    kv.free(a);
    fork(&mut kv, b, c);
    let last = |id| kv.block_tables(id)[0][1];
    let tables = [b, c].map(last);
    let both = BTreeMap::from([(b, 20..21), (c, 20..21)]);
    kv.check_integrity(&both).unwrap();
    let made = kv.hand_out_copies(7);
    let copies: Vec<_> = made.iter().map(|c| (c.src, c.dst)).collect();
    assert_eq!(copies, tables.map(|dst| (2, dst)));
    assert_eq!(kv.hand_out_copies(8), []);
    kv.confirm_copies(7);
    kv.check_integrity(&both).unwrap();
    kv.free(b);
    kv.free(c);
    assert_eq!(kv.num_free_blocks(), 7);
}

#[test]
fn who_writes_into_a_known_block_alone_makes_it_unknown() {
    let mut kv = manager(&[None]);
    let a = computed(&mut kv, 0, (0..40).collect(), 32);
    let found = kv.shared_blocks(a.id(), 20).expect("all is there");
    let b = RequestId(1);
    kv.share(b, found);
    kv.free(a.id());
    assert_eq!(kv.get_computed_blocks(&a).num_cached_tokens, 32);
    assert!(kv.allocate_slots(b, 20..21));
    assert_eq!(kv.hand_out_copies(0), []);
    assert_eq!(kv.get_computed_blocks(&a).num_cached_tokens, 16);
}
