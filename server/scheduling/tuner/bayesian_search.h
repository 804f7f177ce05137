// Finds the cheapest setting with few measurements: a Gaussian process and expected improvement
// (Jones, Schonlau and Welch 1998). Ask for a point, measure its cost, tell it, repeat.
//
// Pure and deterministic: the same seed, points and costs give the same questions, so whoever
// decides for several ranks asks once and tells all. One thread. An ask takes a few milliseconds
// with 20 points in two dimensions.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/status.h"
#include "server/scheduling/tuner/gaussian_process.h"

namespace gradbus::scheduling {

struct Dimension {
  std::string name;
  double min = 0;
  double max = 1;
  bool logarithmic = false;  // sizes; then min is above 0
};

struct SearchOptions {
  // How much better a point must promise to be, in standard deviations of the costs. Horovod's
  // autotuner and ours: 0.01; DeAR's: 0.1, which explores more.
  double xi = 0.01;
  uint32_t first_points = 4;  // spread evenly before the process is asked
  uint64_t seed = 1;
};

struct Measured {
  std::vector<double> point;
  double cost = 0;
};

class BayesianSearch {
 public:
  // At least one dimension; each has min < max.
  BayesianSearch(std::vector<Dimension> dimensions, const SearchOptions& options);

  // Where to measure next, within the bounds.
  std::vector<double> ask();
  // Any point, asked for or not. GB-F100 for a point out of bounds, or a cost that is no number.
  Status tell(const std::vector<double>& point, double cost);

  // The cheapest so far; none before the first tell().
  std::optional<Measured> best() const;
  size_t measured() const { return costs_.size(); }

 private:
  Eigen::VectorXd to_unit(const std::vector<double>& point) const;
  std::vector<double> from_unit(const Eigen::VectorXd& unit) const;
  Eigen::VectorXd spread_point();
  Eigen::VectorXd random_point();
  GaussianProcess fitted() const;
  Eigen::VectorXd most_promising();

  std::vector<Dimension> dimensions_;
  SearchOptions options_;
  std::mt19937_64 random_;
  std::vector<double> shift_;  // of the evenly spread points
  uint32_t spread_ = 0;        // of them that were asked
  std::vector<Eigen::VectorXd> points_;
  std::vector<double> costs_;
};

// By how much a point is expected to be cheaper than `best`, at least `margin` being demanded.
double expected_improvement(const Posterior& posterior, double best, double margin);

}  // namespace gradbus::scheduling
