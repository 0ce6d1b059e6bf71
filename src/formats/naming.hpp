// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors of what is made from a file, with the file's name.
#pragma once

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <new>
#include <string>
#include <utility>

#include "text.hpp"

namespace cohort::formats {

/// Does `work`, which depends on what a file says. A file may be good by itself and still ask for
/// what cannot be: a table or a plan that is too large, a split that no SLO allows. The library
/// that finds out does not know the file.
/// @returns What `work` does.  @throws input_error Instead of config_error and std::bad_alloc.
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
