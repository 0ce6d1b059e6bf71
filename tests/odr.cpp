// SPDX-License-Identifier: Apache-2.0
// With odr_other.cpp: two translation units with every header. A function or variable that a header
// forgot to make inline is defined twice and does not link.
#include <cohort/cohort.hpp>

const void* time_seen_by_other();

int main() { return time_seen_by_other() == &cohort::never ? 0 : 1; }
