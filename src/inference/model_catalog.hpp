// SPDX-License-Identifier: Apache-2.0
/// @file
/// The models that a server serves now, by name and version.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model_service.hpp"

namespace cohort::inference {

/// An entry that was found stays valid: a request ends with the model it began with, even if that
/// is replaced or removed meanwhile. Thread safety: any thread. Complexity: O(log models).
class model_catalog {
 public:
  using entry = std::shared_ptr<const served_model>;

  /// Serves requests for this name and version with this model from now on.
  void publish(entry m) {
    const std::lock_guard lock{mutex_};
    models_[m->meta.name].insert_or_assign(number_of(m->meta.version), std::move(m));
  }
  /// @returns Whether it was there.
  bool withdraw(std::string_view name, std::string_view version) {
    const std::lock_guard lock{mutex_};
    const auto at = models_.find(name);
    if (at == models_.end() || at->second.erase(number_of(version)) == 0) return false;
    if (at->second.empty()) models_.erase(at);
    return true;
  }

  /// @param version Empty: the latest. @returns Null if there is none.
  [[nodiscard]] entry find(std::string_view name, std::string_view version = {}) const {
    const std::lock_guard lock{mutex_};
    const auto at = models_.find(name);
    if (at == models_.end()) return nullptr;
    if (version.empty()) return at->second.rbegin()->second;
    const auto found = at->second.find(number_of(version));
    return found == at->second.end() || found->second->meta.version != version ? nullptr
                                                                               : found->second;
  }
  /// The versions of a model in ascending order.
  [[nodiscard]] std::vector<entry> versions(std::string_view name) const {
    const std::lock_guard lock{mutex_};
    std::vector<entry> all;
    if (const auto at = models_.find(name); at != models_.end()) {
      for (const auto& [number, m] : at->second) all.push_back(m);
    }
    return all;
  }
  [[nodiscard]] bool is_empty() const {
    const std::lock_guard lock{mutex_};
    return models_.empty();
  }
  /// All models, by name and version.
  [[nodiscard]] std::vector<entry> all() const {
    const std::lock_guard lock{mutex_};
    std::vector<entry> all;
    for (const auto& [name, versions] : models_) {
      for (const auto& [number, m] : versions) all.push_back(m);
    }
    return all;
  }

 private:
  using by_version = std::map<std::uint64_t, entry>;

  static std::uint64_t number_of(std::string_view version) noexcept {
    std::uint64_t n = 0;
    std::from_chars(version.data(), version.data() + version.size(), n);
    return n;
  }

  mutable std::mutex mutex_;
  std::map<std::string, by_version, std::less<>> models_;
};

/// Calls `f(of, step, model)` for each step of an ensemble and, if `is_deep`, of the ensembles that
/// it has as steps, each entered once. `model` is null if that version is not served.
template <class F>
void each_step(const model_catalog& in, const served_model& ensemble, bool is_deep, F f) {
  std::vector<model_catalog::entry> entered{{model_catalog::entry{}, &ensemble}};
  for (std::size_t i = 0; i < entered.size(); ++i) {
    const model_catalog::entry of = entered[i];
    for (const ensemble_plan::step& s : of->ensemble->steps()) {
      const model_catalog::entry m = in.find(s.model, s.version);
      f(*of, s, m);
      if (is_deep && m && m->ensemble && std::ranges::find(entered, m) == entered.end()) {
        entered.push_back(m);
      }
    }
  }
}

}  // namespace cohort::inference
