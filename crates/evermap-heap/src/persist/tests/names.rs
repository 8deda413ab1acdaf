//! Tests that derived code works with any names of the program's types.

/// Types with the names that derived code uses or could use, in a module that imports nothing else.
#[allow(dead_code)]
mod program {
    macro_rules! types {
        ($($name:ident)*) => { $(
            #[derive(crate::Persist, crate::PersistHash)]
            #[cfg_attr(feature = "serde", derive(crate::PersistDeserialize))]
            #[repr(C)]
            pub struct $name {
                pub number: u64,
            }
        )* };
    }
    types! {
        A B C D E F S T U V K Field Fields FieldSource Table Source0 Source1 Persist Plain Mut Build
        Built Slot Part Parts Projection Init Vec Box String Option Some None Result Ok Err Default
        Drop Bounds Description Releaser Error Value Values Place Shape Fill
    }

    #[derive(Clone, Copy, crate::Persist, crate::Plain, crate::PersistHash)]
    #[cfg_attr(feature = "serde", derive(crate::PersistDeserialize))]
    #[repr(u8)]
    pub enum Names {
        Ok,
        Err,
        Some,
        None,
    }

    /// Such types as fields and as type parameters.
    #[derive(crate::Persist, crate::PersistHash)]
    #[cfg_attr(feature = "serde", derive(crate::PersistDeserialize))]
    #[repr(C)]
    pub struct All<Source2, Table2> {
        pub a: A,
        pub d: D,
        pub e: E,
        pub table: Table,
        pub source0: Source0,
        pub source1: Source1,
        pub option: Option,
        pub result: Result,
        pub names: Names,
        pub first: Source2,
        pub second: Table2,
    }
}

#[test]
fn derived_code_works_whatever_the_types_are_called() {
    use program::*;
    let object = super::object::<All<u64, u32>, _>(AllInit {
        a: AInit { number: 1 },
        d: DInit { number: 2 },
        e: EInit { number: 3 },
        table: TableInit { number: 4 },
        source0: Source0Init { number: 5 },
        source1: Source1Init { number: 6 },
        option: OptionInit { number: 7 },
        result: ResultInit { number: 8 },
        names: Names::None,
        first: 9_u64,
        second: 10_u32,
    });
    assert_eq!(
        (object.root().table.number, object.root().source0.number, object.root().second),
        (4, 5, 10)
    );
    super::close(object);
}
