// expect: each row of a table has a make
// SPDX-License-Identifier: Apache-2.0
#include <registry/name_table.hpp>

using namespace cohort::registry;
constexpr name_table sums{
    row{"none", "nothing", [](int) { return 0; }},
#ifndef COHORT_WELL_FORMED
    row{"twice", "the number and itself"},  // A name that nothing would run.
#endif
};
