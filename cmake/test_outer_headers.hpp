// SPDX-License-Identifier: Apache-2.0
// outer_headers.hpp for tests.
#pragma once

#include "outer_headers.hpp"

#include <doctest/doctest.h>
