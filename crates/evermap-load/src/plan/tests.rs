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

fn mapping(options: Options) -> Options {
    Options { may_map: true, ..options }
}

fn first(facts: &Facts, options: &Options) -> Method {
    plan(facts, options).unwrap().choices[0].method
}

#[test]
fn a_cold_written_file_is_taken_over() {
    assert_eq!(first(&facts(), &Options::default()), Method::TakeoverOnDemand);
    let finish = Options { latency: Latency::Finish, ..Options::default() };
    assert_eq!(first(&facts(), &finish), Method::Takeover);
    let buffered = Facts { direct_block_bytes: None, ..facts() };
    assert_eq!(first(&buffered, &finish), Method::ReadUncached);
    let kept = Options { cache: Cache::Keep, ..Options::default() };
    assert_eq!(first(&facts(), &kept), Method::ReadHuge);
}

#[test]
fn a_warm_file_is_mapped_if_little_is_written_else_read_into_huge_pages() {
    let written = |share| mapping(Options { written: Some(share), ..Options::default() });
    assert_eq!(first(&warm(), &written(0.0)), Method::MmapHuge);
    assert_eq!(first(&warm(), &written(0.2)), Method::MmapHuge);
    assert_eq!(first(&warm(), &written(0.25)), Method::ReadHuge);
    assert_eq!(first(&warm(), &Options::default()), Method::ReadHuge);
}

#[test]
fn a_cold_read_only_file_is_mapped_unless_the_cache_is_dropped() {
    for order in [Order::Unknown, Order::Sequential, Order::Random] {
        let options = mapping(Options { written: Some(0.0), order, ..Options::default() });
        assert_eq!(first(&facts(), &options), Method::MmapHuge);
        assert!(maps_anyway(&facts(), &options));
        let options = Options { cache: Cache::Drop, ..options };
        assert_eq!(first(&facts(), &options), Method::TakeoverOnDemand);
        assert!(!maps_anyway(&facts(), &options));
    }
}

#[test]
fn a_file_that_may_change_is_not_mapped() {
    let read_only = Options { written: Some(0.0), ..Options::default() };
    for facts in [facts(), warm()] {
        let plan = plan(&facts, &read_only).unwrap();
        assert!(plan.choices.iter().all(|choice| !choice.method.maps_the_file()), "{plan:?}");
        let sealed = Facts { is_unchangeable: true, ..facts };
        assert_eq!(first(&sealed, &read_only), Method::MmapHuge);
    }
}

#[test]
fn compressed_files_are_read_by_many_threads() {
    let facts = Facts { is_compressed: true, direct_block_bytes: None, ..facts() };
    let plan = plan(&facts, &Options::default()).unwrap();
    assert_eq!((plan.choices[0].method, plan.choices[0].threads), (Method::ReadHuge, 8));
}

#[test]
fn erofs_is_mapped_unless_access_is_random_or_writes() {
    let packed = Facts {
        is_compressed: true,
        is_unchangeable: true,
        direct_block_bytes: None,
        file_system: "erofs".into(),
        ..facts()
    };
    let options = |order, written| Options { order, written: Some(written), ..Options::default() };
    assert_eq!(first(&packed, &options(Order::Sequential, 0.0)), Method::MmapHuge);
    assert_eq!(first(&packed, &options(Order::Unknown, 0.0)), Method::MmapHuge);
    assert_eq!(first(&packed, &options(Order::Random, 0.0)), Method::ReadHuge);
    assert_eq!(first(&packed, &options(Order::Sequential, 0.1)), Method::ReadHuge);
    let other = Facts { file_system: "squashfs".into(), ..packed };
    assert_eq!(first(&other, &options(Order::Sequential, 0.0)), Method::ReadHuge);
}

#[test]
fn a_file_in_memory_counts_as_cached_and_is_not_mapped_if_it_has_holes() {
    let written = |share| mapping(Options { written: Some(share), ..Options::default() });
    let dense = Facts { is_in_memory: true, direct_block_bytes: None, ..warm() };
    assert_eq!(first(&dense, &written(0.0)), Method::MmapHuge);
    assert_eq!(first(&dense, &written(0.2)), Method::MmapHuge);
    assert_eq!(first(&dense, &written(1.0)), Method::ReadHuge);
    let sparse = Facts { resident_bytes: Some(1 << 20), ..dense };
    assert_eq!(first(&sparse, &written(0.0)), Method::ReadHuge);
}

#[test]
fn a_hardly_touched_file_is_mapped() {
    let options = |cache| mapping(Options { touched: Some(0.001), cache, ..Options::default() });
    let packed = Facts { is_compressed: true, ..facts() };
    for facts in [facts(), warm(), packed] {
        assert_eq!(first(&facts, &options(Cache::Auto)), Method::MmapHuge);
    }
    assert_eq!(first(&facts(), &options(Cache::Drop)), Method::TakeoverOnDemand);
}

#[test]
fn a_file_larger_than_memory_is_mapped_or_refused() {
    let facts = Facts { available_bytes: Some(32 << 20), ..facts() };
    let kept = (64 << 20) / 256 + (2 << 20);
    let short = NoMemory { needed_bytes: 64 << 20, available_bytes: (32 << 20) - kept };
    assert_eq!(plan(&facts, &Options::default()), Err(short));
    assert_eq!(first(&facts, &mapping(Options::default())), Method::MmapHuge);
    let xfs = Facts { shares_blocks: true, ..facts };
    assert_eq!(first(&xfs, &Options::default()), Method::Clone);
}

#[test]
fn overhead_counts_towards_the_available_memory() {
    let bytes = facts().bytes;
    for (available, fits) in [(bytes, false), (bytes + (1 << 20), false), (bytes + (4 << 20), true)]
    {
        let facts = Facts { available_bytes: Some(available), ..facts() };
        assert_eq!(plan(&facts, &Options::default()).is_ok(), fits, "{available}");
    }
    let allowed = Options { memory_bytes_max: Some(bytes), ..Options::default() };
    assert!(plan(&facts(), &allowed).is_ok(), "overhead does not count towards a requested limit");
}

#[test]
fn every_plan_ends_with_the_method_that_always_works() {
    for resident in [0, 32 << 20, 64 << 20] {
        for direct in [None, Some(4096)] {
            let facts =
                Facts { resident_bytes: Some(resident), direct_block_bytes: direct, ..facts() };
            let plan = plan(&facts, &Options::default()).unwrap();
            assert_eq!(plan.choices.last().unwrap().method, Method::Read);
        }
    }
    let short = Facts { bytes: 4097, ..facts() };
    assert_eq!(first(&short, &Options::default()), Method::Read);
}
