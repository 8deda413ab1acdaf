#![allow(clippy::unwrap_used)]
use super::*;

pub(crate) fn facts() -> Facts {
    Facts {
        bytes: 64 << 20,
        file_system: "ext4".into(),
        is_in_memory: false,
        is_compressed: false,
        shares_blocks: false,
        is_unchangeable: false,
        resident_bytes: Some(0),
        dirty_bytes: 0,
        direct_block_bytes: Some(4096),
        available_bytes: Some(1 << 30),
        available_limit: "the system",
        processors: 2,
        device_bytes_per_s: None,
    }
}

fn warm() -> Facts {
    Facts { resident_bytes: Some(64 << 20), ..facts() }
}

fn mapping(wishes: Wishes) -> Wishes {
    Wishes { may_map: true, ..wishes }
}

fn first(facts: &Facts, wishes: &Wishes) -> Method {
    plan(facts, wishes).unwrap().choices[0].method
}

#[test]
fn cold_and_written_is_taken_over() {
    assert_eq!(first(&facts(), &Wishes::default()), Method::TakeoverOnDemand);
    let finish = Wishes { latency: Latency::Finish, ..Wishes::default() };
    assert_eq!(first(&facts(), &finish), Method::Takeover);
    let buffered = Facts { direct_block_bytes: None, ..facts() };
    assert_eq!(first(&buffered, &finish), Method::ReadUncached);
    let kept = Wishes { cache: Cache::Keep, ..Wishes::default() };
    assert_eq!(first(&facts(), &kept), Method::ReadHuge);
}

#[test]
fn warm_is_mapped_if_little_is_written_and_else_read_into_huge_pages() {
    let written = |share| mapping(Wishes { written: Some(share), ..Wishes::default() });
    assert_eq!(first(&warm(), &written(0.0)), Method::MmapHuge);
    assert_eq!(first(&warm(), &written(0.2)), Method::MmapHuge);
    assert_eq!(first(&warm(), &written(0.25)), Method::ReadHuge);
    assert_eq!(first(&warm(), &Wishes::default()), Method::ReadHuge);
}

#[test]
fn cold_and_only_read_is_mapped_in_whatever_order_unless_nothing_is_to_stay_cached() {
    for order in [Order::Unknown, Order::Sequential, Order::Random] {
        let wishes = mapping(Wishes { written: Some(0.0), order, ..Wishes::default() });
        assert_eq!(first(&facts(), &wishes), Method::MmapHuge);
        assert!(maps_anyway(&facts(), &wishes));
        let wishes = Wishes { cache: Cache::Drop, ..wishes };
        assert_eq!(first(&facts(), &wishes), Method::TakeoverOnDemand);
        assert!(!maps_anyway(&facts(), &wishes));
    }
}

#[test]
fn nothing_is_mapped_that_somebody_may_change() {
    let read_only = Wishes { written: Some(0.0), ..Wishes::default() };
    for facts in [facts(), warm()] {
        let plan = plan(&facts, &read_only).unwrap();
        assert!(plan.choices.iter().all(|choice| !choice.method.maps_the_file()), "{plan:?}");
        let sealed = Facts { is_unchangeable: true, ..facts };
        assert_eq!(first(&sealed, &read_only), Method::MmapHuge);
    }
}

#[test]
fn what_decompresses_is_read_by_many() {
    let facts = Facts { is_compressed: true, direct_block_bytes: None, ..facts() };
    let plan = plan(&facts, &Wishes::default()).unwrap();
    assert_eq!((plan.choices[0].method, plan.choices[0].threads), (Method::ReadHuge, 8));
}

#[test]
fn erofs_decompresses_ahead_of_who_reads_a_mapping_in_order() {
    let packed = Facts {
        is_compressed: true,
        is_unchangeable: true,
        direct_block_bytes: None,
        file_system: "erofs".into(),
        ..facts()
    };
    let wishes = |order, written| Wishes { order, written: Some(written), ..Wishes::default() };
    assert_eq!(first(&packed, &wishes(Order::Sequential, 0.0)), Method::MmapHuge);
    assert_eq!(first(&packed, &wishes(Order::Unknown, 0.0)), Method::MmapHuge);
    assert_eq!(first(&packed, &wishes(Order::Random, 0.0)), Method::ReadHuge);
    assert_eq!(first(&packed, &wishes(Order::Sequential, 0.1)), Method::ReadHuge);
    let other = Facts { file_system: "squashfs".into(), ..packed };
    assert_eq!(first(&other, &wishes(Order::Sequential, 0.0)), Method::ReadHuge);
}

#[test]
fn what_is_in_memory_is_as_what_is_cached_and_is_not_mapped_where_it_has_holes() {
    let written = |share| mapping(Wishes { written: Some(share), ..Wishes::default() });
    let dense = Facts { is_in_memory: true, direct_block_bytes: None, ..warm() };
    assert_eq!(first(&dense, &written(0.0)), Method::MmapHuge);
    assert_eq!(first(&dense, &written(0.2)), Method::MmapHuge);
    assert_eq!(first(&dense, &written(1.0)), Method::ReadHuge);
    let sparse = Facts { resident_bytes: Some(1 << 20), ..dense };
    assert_eq!(first(&sparse, &written(0.0)), Method::ReadHuge);
}

#[test]
fn what_is_hardly_touched_is_mapped_wherever_it_is() {
    let wishes = |cache| mapping(Wishes { touched: Some(0.001), cache, ..Wishes::default() });
    let packed = Facts { is_compressed: true, ..facts() };
    for facts in [facts(), warm(), packed] {
        assert_eq!(first(&facts, &wishes(Cache::Auto)), Method::MmapHuge);
    }
    assert_eq!(first(&facts(), &wishes(Cache::Drop)), Method::TakeoverOnDemand);
}

#[test]
fn what_does_not_fit_is_mapped_or_refused() {
    let facts = Facts { available_bytes: Some(32 << 20), ..facts() };
    let kept = (64 << 20) / 256 + (2 << 20);
    let short = NoMemory { needed_bytes: 64 << 20, available_bytes: (32 << 20) - kept };
    assert_eq!(plan(&facts, &Wishes::default()), Err(short));
    assert_eq!(first(&facts, &mapping(Wishes::default())), Method::MmapHuge);
    let xfs = Facts { shares_blocks: true, ..facts };
    assert_eq!(first(&xfs, &Wishes::default()), Method::Clone);
}

#[test]
fn what_just_fits_is_more_than_there_is_with_what_it_takes_to_keep_it() {
    let bytes = facts().bytes;
    for (available, fits) in [(bytes, false), (bytes + (1 << 20), false), (bytes + (4 << 20), true)]
    {
        let facts = Facts { available_bytes: Some(available), ..facts() };
        assert_eq!(plan(&facts, &Wishes::default()).is_ok(), fits, "{available}");
    }
    let allowed = Wishes { memory_bytes_max: Some(bytes), ..Wishes::default() };
    assert!(plan(&facts(), &allowed).is_ok(), "what is allowed is a number of bytes");
}

#[test]
fn every_plan_ends_with_what_always_works() {
    for resident in [0, 32 << 20, 64 << 20] {
        for direct in [None, Some(4096)] {
            let facts =
                Facts { resident_bytes: Some(resident), direct_block_bytes: direct, ..facts() };
            let plan = plan(&facts, &Wishes::default()).unwrap();
            assert_eq!(plan.choices.last().unwrap().method, Method::Read);
        }
    }
    let short = Facts { bytes: 4097, ..facts() };
    assert_eq!(first(&short, &Wishes::default()), Method::Read);
}
