// SPDX-License-Identifier: Apache-2.0
/// @file
/// Adds a file's name to errors caused by its content.
#pragma once

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <new>
#include <string>
#include <utility>

#include "text.hpp"

namespace cohort::formats {

/// Calls `work`, which depends on a file's content. A valid file may still require something
/// impossible: a table or a plan that is too large, a split that no SLO permits. The library that
/// detects that does not know the file.
/// @returns The result of `work`.  @throws input_error In place of config_error and std::bad_alloc.
template <class Work>
decltype(auto) naming(const std::string& file, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const config_error& e) {
    throw input_error{fmt::format("{}: {}", file, e.what())};
  } catch (const std::bad_alloc&) {
    throw input_error{
        fmt::format("{}: too large: expected what fits in the available memory", file)};
  }
}

}  // namespace cohort::formats
