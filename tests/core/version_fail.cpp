// expect: fatal error: .?cohort needs C..20
// with: -std=c++17
// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/reality.hpp>

int main() {}
