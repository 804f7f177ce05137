#include "server/scheduling/tuner/bayesian_search.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/check.h"
#include "common/errors.h"

namespace gradbus::scheduling {
namespace {

constexpr int kRandomPoints = 400;  // of which the most promising is refined
constexpr int kNearPoints = 100;    // around the best known point
constexpr double kNear = 0.08;      // of the range: their deviation
constexpr double kCoarsestStep = 0.05;
constexpr double kFinestStep = 1e-3;  // of the range: refining ends
constexpr double kLengths[] = {0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 2.0};
constexpr double kNoises[] = {1e-6, 1e-3, 3e-2};
constexpr uint32_t kPrimes[] = {2, 3, 5, 7, 11, 13, 17, 19};

// The digits of `index` in base `base`, mirrored behind the point (van der Corput).
double mirrored(uint32_t index, uint32_t base) {
  double result = 0;
  double digit = 1;
  for (; index > 0; index /= base) result += (digit /= base) * (index % base);
  return result;
}

double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

// Sum of twelve uniform ones: the same on every standard library, unlike std::normal_distribution.
double normal(std::mt19937_64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += uniform(random);
  return sum;
}

Eigen::VectorXd clamped(const Eigen::VectorXd& point) { return point.cwiseMax(0.0).cwiseMin(1.0); }

double scaled(const Dimension& dimension, double value) {
  return dimension.logarithmic ? std::log(value) : value;
}

// What is wrong with it, "" for nothing.
std::string problem(const std::vector<Dimension>& dimensions, const std::vector<double>& point,
                    double cost) {
  if (!std::isfinite(cost)) return "the cost is no finite number";
  if (point.size() != dimensions.size()) return "the point has another number of dimensions";
  for (size_t i = 0; i < point.size(); ++i)
    if (!(point[i] >= dimensions[i].min && point[i] <= dimensions[i].max))
      return dimensions[i].name + " is out of bounds";
  return "";
}

// The kernel under which the measured values are most likely. Coarse on purpose: with 20 points,
// finer lengths fit noise.
class KernelFit {
 public:
  KernelFit(const Eigen::MatrixXd& points, const Eigen::VectorXd& values)
      : points_(points), values_(values) {
    best_.lengths.assign(static_cast<size_t>(points.cols()), kLengths[3]);
    best_likelihood_ = likelihood(best_);
    try_all_lengths();
    for (size_t i = 0; i < best_.lengths.size() && best_.lengths.size() > 1; ++i) try_length(i);
  }

  const Kernel& best() const { return best_; }

 private:
  double likelihood(const Kernel& kernel) const {
    return GaussianProcess(kernel, points_, values_).log_marginal_likelihood();
  }

  void offer(const Kernel& kernel) {
    const double found = likelihood(kernel);
    if (!(found > best_likelihood_)) return;
    best_ = kernel;
    best_likelihood_ = found;
  }

  void try_all_lengths() {
    for (const double noise : kNoises)
      for (const double length : kLengths)
        offer({best_.kind, std::vector<double>(best_.lengths.size(), length), noise});
  }

  void try_length(size_t dimension) {
    Kernel kernel = best_;
    for (const double length : kLengths) {
      kernel.lengths[dimension] = length;
      offer(kernel);
    }
  }

  const Eigen::MatrixXd& points_;
  const Eigen::VectorXd& values_;
  Kernel best_;
  double best_likelihood_ = 0;
};

double deviation(const std::vector<double>& costs) {
  const Eigen::Map<const Eigen::ArrayXd> all(costs.data(), static_cast<Eigen::Index>(costs.size()));
  return std::sqrt((all - all.mean()).square().mean());
}

// The point with the largest expected improvement among those that were offered.
class MostPromising {
 public:
  MostPromising(GaussianProcess process, double least_cost, double margin, Eigen::VectorXd first)
      : process_(std::move(process)),
        least_cost_(least_cost),
        margin_(margin),
        point_(std::move(first)),
        promise_(promise(point_)) {}

  bool offer(const Eigen::VectorXd& anywhere) {
    const Eigen::VectorXd point = clamped(anywhere);
    const double found = promise(point);
    if (found <= promise_) return false;
    point_ = point;
    promise_ = found;
    return true;
  }

  // Along each coordinate while that helps, in steps that are halved.
  void refine() {
    for (double step = kCoarsestStep; step > kFinestStep; step /= 2)
      for (Eigen::Index i = 0; i < point_.size(); ++i)
        for (const double move : {step, -step})
          while (offer(point_ + move * Eigen::VectorXd::Unit(point_.size(), i))) {
          }
  }

  const Eigen::VectorXd& point() const { return point_; }

 private:
  double promise(const Eigen::VectorXd& point) const {
    return expected_improvement(process_.at(point), least_cost_, margin_);
  }

  GaussianProcess process_;
  double least_cost_;
  double margin_;
  Eigen::VectorXd point_;
  double promise_;
};

}  // namespace

double expected_improvement(const Posterior& posterior, double best, double margin) {
  const double gain = best - margin - posterior.mean;
  if (posterior.deviation <= 0) return std::max(0.0, gain);
  const double z = gain / posterior.deviation;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  const double probability = std::erfc(-z / std::numbers::sqrt2) / 2;
  return gain * probability + posterior.deviation * density;
}

BayesianSearch::BayesianSearch(std::vector<Dimension> dimensions, const SearchOptions& options)
    : dimensions_(std::move(dimensions)), options_(options), random_(options.seed) {
  GRADBUS_CHECK(!dimensions_.empty() && dimensions_.size() <= std::size(kPrimes));
  for (const Dimension& each : dimensions_)
    GRADBUS_CHECK(each.min < each.max && (!each.logarithmic || each.min > 0));
  for (size_t i = 0; i < dimensions_.size(); ++i) shift_.push_back(uniform(random_));
}

std::vector<double> BayesianSearch::ask() {
  const bool spreads = costs_.empty() || spread_ < options_.first_points;
  return from_unit(spreads ? spread_point() : most_promising());
}

Status BayesianSearch::tell(const std::vector<double>& point, double cost) {
  const std::string wrong = problem(dimensions_, point, cost);
  if (!wrong.empty())
    return error("F100", "a measured cost cannot be used: " + wrong, "measure the point again");
  points_.push_back(to_unit(point));
  costs_.push_back(cost);
  return {};
}

std::optional<Measured> BayesianSearch::best() const {
  if (costs_.empty()) return std::nullopt;
  const auto least = std::min_element(costs_.begin(), costs_.end());
  return Measured{from_unit(points_[static_cast<size_t>(least - costs_.begin())]), *least};
}

Eigen::VectorXd BayesianSearch::to_unit(const std::vector<double>& point) const {
  Eigen::VectorXd unit(static_cast<Eigen::Index>(point.size()));
  for (size_t i = 0; i < point.size(); ++i) {
    const Dimension& each = dimensions_[i];
    const double low = scaled(each, each.min);
    unit(static_cast<Eigen::Index>(i)) =
        (scaled(each, point[i]) - low) / (scaled(each, each.max) - low);
  }
  return unit;
}

std::vector<double> BayesianSearch::from_unit(const Eigen::VectorXd& unit) const {
  std::vector<double> point;
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    const Dimension& each = dimensions_[i];
    const double low = scaled(each, each.min);
    const double value = low + unit(static_cast<Eigen::Index>(i)) * (scaled(each, each.max) - low);
    point.push_back(std::clamp(each.logarithmic ? std::exp(value) : value, each.min, each.max));
  }
  return point;
}

// Halton's points, shifted by a random amount that is the same for all.
Eigen::VectorXd BayesianSearch::spread_point() {
  ++spread_;
  Eigen::VectorXd point(static_cast<Eigen::Index>(dimensions_.size()));
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    const double place = mirrored(spread_, kPrimes[i]) + shift_[i];
    point(static_cast<Eigen::Index>(i)) = place - std::floor(place);
  }
  return point;
}

Eigen::VectorXd BayesianSearch::random_point() {
  Eigen::VectorXd point(static_cast<Eigen::Index>(dimensions_.size()));
  for (double& value : point) value = uniform(random_);
  return point;
}

GaussianProcess BayesianSearch::fitted() const {
  Eigen::MatrixXd points(static_cast<Eigen::Index>(points_.size()), points_.front().size());
  for (size_t i = 0; i < points_.size(); ++i)
    points.row(static_cast<Eigen::Index>(i)) = points_[i].transpose();
  const Eigen::VectorXd values =
      Eigen::Map<const Eigen::VectorXd>(costs_.data(), static_cast<Eigen::Index>(costs_.size()));
  return {KernelFit(points, values).best(), points, values};
}

Eigen::VectorXd BayesianSearch::most_promising() {
  const auto least = std::min_element(costs_.begin(), costs_.end());
  MostPromising best(fitted(), *least, options_.xi * deviation(costs_), random_point());
  for (int i = 0; i < kRandomPoints; ++i) best.offer(random_point());
  const Eigen::VectorXd& cheapest = points_[static_cast<size_t>(least - costs_.begin())];
  for (int i = 0; i < kNearPoints; ++i) {
    Eigen::VectorXd near = cheapest;
    for (double& value : near) value += kNear * normal(random_);
    best.offer(near);
  }
  best.refine();
  return best.point();
}

}  // namespace gradbus::scheduling
