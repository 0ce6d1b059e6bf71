// SPDX-License-Identifier: Apache-2.0
/// @file
/// A small profile folder, made up so that plans can be worked by hand.
#pragma once

#include <filesystem>
#include <string>

#include <support/scratch_file.hpp>

namespace cohort::test {

/// Two models, `a` (SLO 20 ms) and `b` (SLO 40 ms): L(b) = 1 + b ms on the whole device, twice that
/// on half of it, five times that on 20 %. Removed when destroyed.
class profile_folder {
 public:
  profile_folder() : path_{scratch("profiles")} {
    std::filesystem::create_directory(path_);
    std::string latency = "model,batch,partition_pct,latency_ms,note\n";
    std::string util = "model,batch,l2_util_pct,dram_util_pct\n";
    for (const char* name : {"a", "b"}) {
      for (const auto& [size, factor] : {std::pair{20, 5}, {50, 2}, {100, 1}}) {
        for (const int batch : {1, 8}) {
          latency += std::string{name} + ',' + std::to_string(batch) + ',' + std::to_string(size) +
                     ',' + std::to_string(factor * (1 + batch)) + ",x\n";
        }
      }
      util += std::string{name} + ",1,20,40\n";
    }
    write("latency.csv", latency);
    write("slo.csv", "model,slo_ms,mem_mb\na,20,600\nb,40,700\n");
    write("util.csv", util);
    write("interference.csv",
          "c_l2_self,c_l2_other,c_dram_self,c_dram_other,constant\n0,1,0,0,1\n");
  }
  ~profile_folder() { std::filesystem::remove_all(path_); }
  profile_folder(const profile_folder&) = delete;
  profile_folder& operator=(const profile_folder&) = delete;

  void write(const std::string& name, const std::string& text) const {
    spill(path_ + "/" + name, text);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A plan for such a folder: half of GPU 0 runs `a`, all of GPU 1 `b`, 10 requests/s each.
inline std::string plan_of_both(int slo_a_ms = 20, int slo_b_ms = 40) {
  return R"({"algorithm":"elastic","schedulable":true,"gpus":2,"sizes":[20,50,100],"slo_ms":{"a":)" +
         std::to_string(slo_a_ms) + R"(,"b":)" + std::to_string(slo_b_ms) +
         R"(},"demand":{"a":10,"b":10},"gpulets":[
  {"gpu":0,"size":50,"duty_ms":8,"models":[{"model":"a","batch":1,"rate":10}]},
  {"gpu":1,"size":100,"duty_ms":20,"models":[{"model":"b","batch":2,"rate":10}]}]})";
}

}  // namespace cohort::test
