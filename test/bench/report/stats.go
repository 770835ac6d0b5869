// Package report turns samples into medians, ratios and slopes, prints them as a table of 80
// columns, and writes them as JSON.
package report

import (
	"math"
	"slices"
)

// Sample is a set of measurements of one thing.
type Sample []float64

// Median is the middle value; NaN without any.
func (s Sample) Median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(s))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// Range is the least and the greatest value.
func (s Sample) Range() (least, greatest float64) {
	if len(s) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(s), slices.Max(s)
}

// Ratios divides two samples pair by pair: the blocks that were measured next to each other.
func Ratios(a, b Sample) Sample {
	r := make(Sample, min(len(a), len(b)))
	for i := range r {
		r[i] = a[i] / b[i]
	}
	return r
}

// Slope is the exponent of y ~ x^slope by least squares over the logarithms, and half the width of
// its 95 % interval.
func Slope(x, y []float64) (slope, half float64) {
	n := float64(len(x))
	if len(x) < 3 || len(x) != len(y) {
		return math.NaN(), math.NaN()
	}
	var mx, my float64
	for i := range x {
		mx += math.Log(x[i]) / n
		my += math.Log(y[i]) / n
	}
	var sxx, sxy float64
	for i := range x {
		dx := math.Log(x[i]) - mx
		sxx += dx * dx
		sxy += dx * (math.Log(y[i]) - my)
	}
	slope = sxy / sxx
	var rest float64
	for i := range x {
		e := math.Log(y[i]) - my - slope*(math.Log(x[i])-mx)
		rest += e * e
	}
	return slope, student(len(x)-2) * math.Sqrt(rest/(n-2)/sxx)
}

// student is the 97.5 % point of Student's t for so many degrees of freedom; a little too high
// between the entries, never too low.
func student(freedom int) float64 {
	points := []struct {
		freedom int
		t       float64
	}{{1, 12.706}, {2, 4.303}, {3, 3.182}, {4, 2.776}, {5, 2.571}, {6, 2.447}, {7, 2.365},
		{8, 2.306}, {9, 2.262}, {10, 2.228}, {15, 2.131}, {20, 2.086}, {30, 2.042}, {60, 2.000}}
	t := points[0].t
	for _, p := range points {
		if p.freedom <= freedom {
			t = p.t
		}
	}
	return t
}
