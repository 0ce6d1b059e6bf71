// SPDX-License-Identifier: Apache-2.0
/// @file
/// Models that are loaded and unloaded while a server serves: what the protocol asks of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cohort::inference {

struct model_upload;

/// A version of a model in a repository, as it is now.
struct repository_entry {
  std::string name;
  std::string version;  ///< Empty if there is none.
  std::string state;    ///< "READY", "LOADING", "UNLOADING" or "UNAVAILABLE".
  std::string reason;   ///< Why it is not ready, on one line; may be empty.
};

/// What a model is loaded from.
struct load_source {
  std::string config{};  ///< Stands for its configuration; empty: its file is read.
  /// Stand for its folder in the repository, which is not looked at then; null: that.
  std::shared_ptr<const model_upload> files{};
};

/// A folder of models. Thread safety: any thread.
class model_repository {
 public:
  /// Told once, on a thread of the repository's: an HTTP status, 200 if it is done, and else why
  /// not.
  using answer = std::function<void(int status, const std::string& why_not)>;

  /// Loads the versions that the model's configuration chooses, as its files are now; they take the
  /// places of those that are served. If it fails, or takes too long (504), what was served still
  /// is. Refused (409) while an earlier load of the model has not ended.
  virtual void load(const std::string& name, load_source from, answer done) = 0;
  /// Serves no version of it any more. Told when no request goes there, which is before the last
  /// one has ended. Ends a load of it, too, whose caller is told so (409).
  virtual void unload(const std::string& name, answer done) = 0;
  /// What lies in the folder, what is served and what is being loaded, by name and version, without
  /// waiting for a load. Told as `answer` is, one of both. Where the folder cannot be read: what is
  /// served.
  virtual void index(std::function<void(std::vector<repository_entry>)> done, answer failed) = 0;
  /// From now on requests are submitted by what `post` runs: a model that was replaced is taken
  /// away when `post` has run what it was given after that.
  virtual void submitted_by(std::function<void(std::function<void()>)> post) = 0;
  /// The server drains: those who wait for loads are told 503, and so is who asks for one.
  virtual void leave() = 0;

 protected:
  ~model_repository() = default;
};

}  // namespace cohort::inference
