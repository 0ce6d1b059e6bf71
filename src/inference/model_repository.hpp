// SPDX-License-Identifier: Apache-2.0
/// @file
/// The protocol's operations on models that can be loaded and unloaded while the server runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cohort::inference {

struct model_upload;

/// A version of a model in a repository, with its present state.
struct repository_entry {
  std::string name;
  std::string version;  ///< Empty if there is none.
  std::string state;    ///< "READY", "LOADING", "UNLOADING" or "UNAVAILABLE".
  std::string reason;   ///< Why it is not ready, in one line; may be empty.
};

/// The source of a model to load.
struct load_source {
  std::string config{};  ///< Replaces its configuration file; empty: that file is read.
  /// Replace its folder in the repository; null: the folder is read.
  std::shared_ptr<const model_upload> files{};
};

/// A folder of models. Thread safety: any thread.
class model_repository {
 public:
  /// Called once, on a thread of the repository, with an HTTP status (200 on success) and the
  /// reason of a failure.
  using answer = std::function<void(int status, const std::string& why_not)>;

  /// Loads the versions that the model's configuration selects from its present files; they replace
  /// the versions that are served. If loading fails or takes too long (504), the old versions stay.
  /// Refused (409) while an earlier load of the model has not ended.
  virtual void load(const std::string& name, load_source from, answer done) = 0;
  /// Stops serving all versions of a model. Reports success when no new request reaches them, which
  /// is before the last request has ended. Also cancels a load of it, which fails with 409.
  virtual void unload(const std::string& name, answer done) = 0;
  /// Lists the models in the folder, those served and those being loaded, by name and version,
  /// without waiting for a load. Calls one of the two functions, on the thread of `answer`. If the
  /// folder cannot be read, lists the models that are served.
  virtual void index(std::function<void(std::vector<repository_entry>)> done, answer failed) = 0;
  /// Declares that requests are submitted on the thread that runs `post`'s functions. A model that
  /// was replaced is removed once a function posted after the replacement has run.
  virtual void submitted_by(std::function<void(std::function<void()>)> post) = 0;
  /// The server drains: loads that are waited for, and new ones, fail with 503.
  virtual void leave() = 0;

 protected:
  ~model_repository() = default;
};

}  // namespace cohort::inference
