// SPDX-License-Identifier: Apache-2.0
/// @file
/// Handles exceptions at the edge of each request and of each thread.
#pragma once

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "log.hpp"

namespace cohort::serve {

/// An exception as a client sees it: an HTTP status, and one line.
struct fault {
  int status = 500;
  std::string message;
};

/// Converts the exception being handled to a fault. Only within a catch block.
[[nodiscard]] inline fault current_fault() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {503, "the server has no memory for this request"};
  } catch (const resource_error& e) {
    return {503, e.what()};
  } catch (const error& e) {
    return {500, e.what()};
  } catch (const std::exception& e) {
    return {500, fmt::format("internal error: {}", e.what())};
  } catch (...) {
    return {500, "internal error"};
  }
}

/// Logs the exception being handled, as one line. Only within a catch block.
/// @param who The server. @param where The part of it that failed.
inline void log_fault(std::string_view who, std::string_view where) noexcept {
  try {
    log_line(severity::error, log_stream::err, who,
             fmt::format("{}: {}", where, current_fault().message));
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is no memory for the line.
  }
}

/// Calls `work`, and logs its exceptions. For the outermost function of threads, which no exception
/// may leave.
/// @returns Whether it threw nothing.
template <class Work>
bool guarded(std::string_view who, std::string_view where, Work&& work) noexcept {
  try {
    std::forward<Work>(work)();
    return true;
  } catch (...) {
    log_fault(who, where);
    return false;
  }
}

}  // namespace cohort::serve
