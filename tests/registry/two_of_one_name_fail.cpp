// expect: two rows have one name
// SPDX-License-Identifier: Apache-2.0
#include <registry/name_table.hpp>

using namespace cohort::registry;
#ifdef COHORT_WELL_FORMED
constexpr const char* other = "other";
#else
constexpr const char* other = "one";
#endif
constexpr name_table numbers{row{"one", "the first", 1}, row{other, "the second", 2}};
