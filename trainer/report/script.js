// Values under the pointer, or under the arrow keys. The page is whole without it.
(() => {
  'use strict';
  const record = JSON.parse(document.getElementById('record').textContent);
  const runs = record.runs || [record];
  const steps_of = (epoch) => epoch.applied_steps + epoch.skipped_steps;
  const data_share = (times) => {
    const parts = Object.entries(times || {}).filter(([name]) => name !== 'other').map(([, seconds]) => seconds);
    return times.data / parts.reduce((sum, seconds) => sum + seconds, 0);
  };
  const points_of = (source) => {
    const [run, kind, ...rest] = source.split('/');
    const key = rest.join('/'), of = runs[run];
    const all = {
      steps: () => of.steps[key],
      epochs: () => of.epochs.map((epoch) => [epoch.epoch, epoch[key]]),
      ends: () => of.epochs.map((epoch) => [steps_of(epoch), epoch[key]]),
      data_share: () => of.epochs.map((epoch) => [epoch.epoch, data_share(epoch.times_s)]),
    }[kind]();
    return all.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
  };
  const shown = (value, format) => {
    if (format === 'share') return (100 * value).toFixed(2) + ' %';
    if (format === 'seconds') return value < 0.1 ? (1000 * value).toPrecision(3) + ' ms' : value.toPrecision(3) + ' s';
    if (format === 'count' && Math.abs(value) < 100) return String(Number(value.toPrecision(3)));
    if (format === 'count' || Math.abs(value) >= 1e4) return Math.round(value).toLocaleString('en');
    return String(Number(value.toPrecision(4)));
  };
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] <= x) low = middle; else high = middle;
    }
    return x - points[low][0] <= points[high][0] - x ? low : high;
  };

  document.querySelectorAll('.plot').forEach((plot) => {
    const { low, high, x: name, format } = plot.dataset;
    const output = plot.parentElement.querySelector('output'), cursor = plot.querySelector('.cursor');
    let curves = null, at = -1;
    const show = (x) => {
      const texts = curves.map((curve) => [curve, curve.points[nearest(curve.points, x)]]);
      x = texts[0][1][0];
      for (const [, point] of texts) if (Math.abs(point[0] - x) > (high - low) / 20) point.far = true;
      output.textContent = name + ' ' + x.toLocaleString('en') + ': ' +
        texts.filter(([, point]) => !point.far).map(([curve, point]) =>
          (curves.length > 1 ? curve.label + ' ' : '') + shown(point[1], format)).join(' · ');
      texts.forEach(([, point]) => delete point.far);
      cursor.style.left = 100 * (x - low) / (high - low) + '%';
      cursor.style.display = 'block';
    };
    const begin = () => {
      curves = curves || JSON.parse(plot.dataset.curves)
        .map(([label, source]) => ({ label, points: points_of(source) })).filter((curve) => curve.points.length);
      return curves.length > 0;
    };
    const end = () => { output.textContent = ''; cursor.style.display = 'none'; };
    plot.addEventListener('pointermove', (event) => {
      if (!begin()) return;
      const box = plot.getBoundingClientRect();
      show(Number(low) + (high - low) * (event.clientX - box.left) / box.width);
    });
    plot.addEventListener('pointerleave', end);
    plot.addEventListener('blur', end);
    plot.addEventListener('keydown', (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 }[event.key];
      if (by === undefined || !begin()) return;
      event.preventDefault();
      at = Math.min(Math.max((at < 0 ? (by < 0 ? 1e9 : -1) : at) + by, 0), curves[0].points.length - 1);
      show(curves[0].points[at][0]);
    });
  });

  window.addEventListener('beforeprint', () => document.querySelectorAll('details').forEach((one) => { one.open = true; }));
  const follow = document.querySelector('.follow');
  if (follow) {
    const again = () => { if (location.hash === '#follow') setTimeout(() => location.reload(), 5000); };
    follow.hidden = false;
    follow.addEventListener('click', () => setTimeout(again));
    again();
  }
})();
