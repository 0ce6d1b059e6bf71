// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/error.hpp>
#include <cohort/runtime/onnx/library.hpp>

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "api.hpp"
#include "status.hpp"

namespace cohort::runtime::onnx {
namespace {

constexpr const char* file_name = "libonnxruntime.so.1";
constexpr const char* debian_name = "libonnxruntime.so.1.21";  // Name in Debian 13's package.
constexpr std::string_view packages =
    "; scripts/onnxruntime gets it, from PyPI (onnxruntime) or npm (onnxruntime-node), and Debian "
    "13 "
    "has the package libonnxruntime1.21";
constexpr const char* variable = "COHORT_ONNXRUNTIME";

/// The table's version: 30 for "1.30.0"; 0 for other kinds of text.
std::uint32_t api_version_of(std::string_view version) {
  const std::size_t dot = version.find('.');
  if (version.substr(0, dot) != "1") return 0;
  version.remove_prefix(dot == std::string_view::npos ? version.size() : dot + 1);
  std::uint32_t minor = 0;
  std::from_chars(version.data(), version.data() + version.size(), minor);
  return minor;
}

std::string path_of(void* function, const std::string& asked) {
  Dl_info found{};
  if (dladdr(function, &found) == 0 || found.dli_fname == nullptr) return asked;
  return found.dli_fname;
}

}  // namespace

std::shared_ptr<const library> library::open(const std::string& path) {
  std::string asked = path;
  std::string source;
  if (asked.empty()) {
    const char* set = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody sets it.
    if (set != nullptr) asked = set;
    source = asked.empty() ? fmt::format(" ({} is not set)", variable)
                           : fmt::format(" (of {})", variable);
  }
  const bool is_anywhere = asked.empty();
  if (is_anywhere) asked = file_name;
  const auto refuse = [&](std::string_view why) {
    throw resource_error{fmt::format("ONNX Runtime: {}{}: {}", asked, source, why)};
  };

  // Otherwise some builds start a thread to report their use, which no exception may leave.
  (void)setenv("ORT_DISABLE_TELEMETRY", "1", 0);  // NOLINT(concurrency-mt-unsafe): as dlopen.
  constexpr int how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  void* handle = dlopen(asked.c_str(), how);
  if (handle == nullptr) {
    const char* const told = dlerror();  // NOLINT(concurrency-mt-unsafe): the last of this thread.
    std::string why = detail::one_line(told == nullptr ? "cannot be loaded" : told);
    if (why.starts_with(asked + ": ")) why.erase(0, asked.size() + 2);  // Already said.
    if (is_anywhere) handle = dlopen(debian_name, how);
    if (handle == nullptr) refuse(why.append(is_anywhere ? packages : ""));
  }
  void* const entry = dlsym(handle, detail::entry_point);
  if (entry == nullptr)
    refuse(fmt::format("has no {}: it is another library", detail::entry_point));

  const detail::ort_api_base* const base = reinterpret_cast<detail::get_api_base>(entry)();
  // Checked first: the library prints an error if it does not have the version.
  const char* const version = base == nullptr ? nullptr : base->version();
  const std::string told = detail::one_line(version == nullptr ? "none" : version);
  const detail::ort_api* api = nullptr;
  if (api_version_of(told) >= detail::least_api_version) {
    api = base->get_api(detail::least_api_version);
  }
  if (api == nullptr) {
    refuse(fmt::format("its version is {}: expected 1.{} or later of 1", told,
                       detail::least_api_version));
  }

  std::shared_ptr<library> made{new library};
  made->api_ = api;
  made->version_ = told;
  made->path_ = path_of(entry, asked);
  if (const auto why =
          detail::failure_of(*api, api->create_env(detail::fatal_log, "cohort", &made->env_))) {
    refuse(*why);
  }
  return made;
}

bool library::has_strings() const noexcept {
  return api_version_of(version_) >= detail::strings_api_version;
}

/// @throws config_error If CUDA is not available.
void library::append_cuda(detail::ort_session_options& to, unsigned device) const {
  if (api_version_of(version_) < detail::cuda_api_version) {
    throw config_error{fmt::format("ONNX Runtime {}: expected 1.{} or later for CUDA", version_,
                                   detail::cuda_api_version)};
  }
  const auto check = [&](detail::ort_status* status) {
    if (const auto why = detail::failure_of(*api_, status)) throw config_error{*why};
  };
  detail::ort_cuda_options* made = nullptr;
  check(api_->create_cuda_options(&made));
  const std::unique_ptr<detail::ort_cuda_options, void (*)(detail::ort_cuda_options*)> options{
      made, api_->release_cuda_options};
  const std::string number = fmt::to_string(device);
  const std::array keys{"device_id"};
  const std::array values{number.c_str()};
  check(api_->update_cuda_options(made, keys.data(), values.data(), keys.size()));
  check(api_->append_cuda(&to, made));
}

std::string library::why_no_cuda(unsigned device) const {
  detail::ort_session_options* made = nullptr;
  if (const auto why = detail::failure_of(*api_, api_->create_session_options(&made))) return *why;
  const std::unique_ptr<detail::ort_session_options, void (*)(detail::ort_session_options*)>
      options{made, api_->release_session_options};
  try {
    append_cuda(*made, device);
    return {};
  } catch (const config_error& e) {
    return fmt::format("ONNX Runtime {} ({}): {}", version_, path_, e.what());
  }
}

library::~library() {
  if (env_ != nullptr) api_->release_env(env_);
}

}  // namespace cohort::runtime::onnx
